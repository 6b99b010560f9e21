package objectbody

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Field numbers of Secret (k8s.io/api/core/v1/generated.proto). An entry of a map
// has a key and a value, as the entries of annotations.
const (
	secretData       protowire.Number = 2
	secretStringData protowire.Number = 4
)

// lastApplied is the annotation in which kubectl keeps the object that it applied,
// including the values.
const lastApplied = "kubectl.kubernetes.io/last-applied-configuration"

// SecretValues returns the values of the Secrets in a body that is only about
// Secrets: one Secret, a list, a table, a patch, an event of a watch, or none, for
// example if only metadata was asked for. It returns an error if the body may hold
// values that cannot be read.
func (e Encoding) SecretValues(body []byte) ([]string, error) {
	if len(body) == 0 {
		return nil, nil
	}
	if e == Protobuf {
		return protobufSecrets(body)
	}
	if e == JSONPatch {
		return patchSecrets(body)
	}
	text, err := e.toJSON(body)
	if err != nil {
		return nil, err
	}
	var tree any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("read the values of Secrets: %w", err)
	}
	return treeSecrets(nil, tree), nil
}

// patchSecrets treats every text of a JSON patch as a value, because its meaning
// depends on the stored object.
func patchSecrets(body []byte) ([]string, error) {
	var operations []struct {
		Value any `json:"value"`
	}
	if err := json.Unmarshal(body, &operations); err != nil {
		return nil, fmt.Errorf("read the values of a JSON patch: %w", err)
	}
	var values []string
	for _, op := range operations {
		switch value := op.Value.(type) {
		case string:
			values = append(values, value, decoded(value))
		case map[string]any:
			values = append(values, entries(value, true)...)
			values = append(values, entries(value, false)...)
			values = treeSecrets(values, value)
		}
	}
	return values, nil
}

// treeSecrets finds the values at any depth: an object may be in a list, in the
// rows of a table, or in the event of a watch.
func treeSecrets(values []string, tree any) []string {
	switch t := tree.(type) {
	case []any:
		for _, v := range t {
			values = treeSecrets(values, v)
		}
	case map[string]any:
		for key, v := range t {
			m, isMap := v.(map[string]any)
			switch {
			case key == "data" && isMap:
				values = append(values, entries(m, true)...)
			case key == "stringData" && isMap:
				values = append(values, entries(m, false)...)
			case key == lastApplied:
				text, _ := v.(string)
				var applied any
				if json.Unmarshal([]byte(text), &applied) == nil {
					values = treeSecrets(values, applied)
				}
			default:
				values = treeSecrets(values, v)
			}
		}
	}
	return values
}

func entries(m map[string]any, encoded bool) []string {
	var values []string
	for _, v := range m {
		text, ok := v.(string)
		if ok && encoded {
			text = decoded(text)
		}
		if text != "" {
			values = append(values, text)
		}
	}
	return values
}

// decoded is a value of data, decoded. A value that cannot be decoded is returned as
// it is; the API server refuses it.
func decoded(text string) string {
	value, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return text
	}
	return string(value)
}

// RequestedToken returns the token in the answer to a TokenRequest, if there is one.
func (e Encoding) RequestedToken(body []byte) ([]string, error) {
	if len(body) == 0 {
		return nil, nil
	}
	var answer authenticationv1.TokenRequest
	if e == Protobuf {
		p, err := decodeProtobuf(body)
		if err == nil {
			err = answer.Unmarshal(p.raw())
		}
		if err != nil {
			return nil, fmt.Errorf("read the answer to a TokenRequest: %w", err)
		}
	} else {
		text, err := e.toJSON(body)
		if err == nil {
			err = json.Unmarshal(text, &answer)
		}
		if err != nil {
			return nil, fmt.Errorf("read the answer to a TokenRequest: %w", err)
		}
	}
	if answer.Status.Token == "" {
		return nil, nil
	}
	return []string{answer.Status.Token}, nil
}

func protobufSecrets(body []byte) ([]string, error) {
	p, err := decodeProtobuf(body)
	if err != nil {
		return nil, err
	}
	switch p.Kind {
	case "Secret":
		return protobufSecret(nil, p.raw())
	case "SecretList":
		var values []string
		err := eachField(p.raw(), listItems, func(_, start, end int) error {
			var err error
			values, err = protobufSecret(values, p.raw()[start:end])
			return err
		})
		return values, err
	case "Status", "PartialObjectMetadata", "PartialObjectMetadataList", "DeleteOptions":
		return nil, nil
	}
	return nil, fmt.Errorf("there is no telling the values of Secrets in a %s", p.Kind)
}

func protobufSecret(values []string, secret []byte) ([]string, error) {
	for _, field := range []protowire.Number{secretData, secretStringData} {
		err := eachField(secret, field, func(_, start, end int) error {
			entry := secret[start:end]
			return eachField(entry, annotationsValue, func(_, start, end int) error {
				values = append(values, string(entry[start:end]))
				return nil
			})
		})
		if err != nil {
			return nil, err
		}
	}
	md, err := protobufMetadata(secret)
	if err != nil {
		return nil, err
	}
	var applied any
	if json.Unmarshal([]byte(md.Annotations[lastApplied]), &applied) == nil {
		values = treeSecrets(values, applied)
	}
	return values, nil
}

// WatchedSecret returns the values in one event of a watch of Secrets, as it is
// framed: a line of JSON, or a message of protobuf.
func (e Encoding) WatchedSecret(frame []byte) ([]string, error) {
	switch e {
	case JSON:
		return e.SecretValues(frame)
	case Protobuf:
		var event metav1.WatchEvent
		if err := event.Unmarshal(frame); err != nil {
			return nil, fmt.Errorf("read an event of a watch: %w", err)
		}
		return protobufSecrets(event.Object.Raw)
	}
	return nil, errors.New("there is no telling the values of Secrets in a watch of " + string(e))
}
