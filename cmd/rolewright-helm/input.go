package main

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// input is what the run is given: the document of the protocol, and the settings of the watch.
type input struct {
	Run struct {
		Action   string     `json:"action"`
		Attempt  int64      `json:"attempt"`
		Deadline *time.Time `json:"deadline"`
		Previous *struct {
			Generation int64 `json:"generation"`
		} `json:"previous"`
	} `json:"run"`
	Object   unstructured.Unstructured `json:"object"`
	settings settings
}

// settings are what the watch says about its chart.
type settings struct {
	Chart                  string            `json:"chart"`
	OverrideValues         map[string]string `json:"overrideValues"`
	SuppressOverrideValues bool              `json:"suppressOverrideValues"`
	Values                 map[string]any    `json:"values"`
	ValuesOverride         map[string]any    `json:"valuesOverride"`
	ValuesFrom             []valuesSource    `json:"valuesFrom"`
	DryRunOption           string            `json:"dryRunOption"`
	Wait                   bool              `json:"wait"`
	CRDs                   string            `json:"crds"`
	MaxHistory             int               `json:"maxHistory"`
	TakeOwnership          bool              `json:"takeOwnership"`
	ExposeManifest         bool              `json:"exposeManifest"`
	Test                   bool              `json:"test"`
}

// valuesSource is a Secret or ConfigMap. Its keys, after the prefix, are paths of values.
type valuesSource struct {
	Name   string            `json:"name"`
	Prefix string            `json:"prefix"`
	Data   map[string]string `json:"data"`
	Secret bool              `json:"secret"`
}

// minSecret is the length of the shortest value that is masked: shorter ones occur in every text by chance.
const minSecret = 6

// secrets returns the values of Secrets and their lines, plain and in the forms of JSON and base64, the longest first.
func (in *input) secrets() []string {
	found := map[string]bool{}
	for _, from := range in.settings.ValuesFrom {
		for _, value := range from.Data {
			if !from.Secret {
				break
			}
			for _, text := range append(strings.Split(value, "\n"), value) {
				if text = strings.TrimSpace(text); len(text) < minSecret {
					continue
				}
				quoted, _ := json.Marshal(text) // a text
				found[text], found[string(quoted[1:len(quoted)-1])], found[base64.StdEncoding.EncodeToString([]byte(text))] = true, true, true
			}
			if len(value) >= minSecret {
				found[base64.StdEncoding.EncodeToString([]byte(value))] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(found), func(a, b string) int { return cmp.Or(len(b)-len(a), strings.Compare(a, b)) })
}

func readInput() (*input, error) {
	in := &input{}
	if err := readJSON("ROLEWRIGHT_INPUT", in); err != nil {
		return nil, err
	}
	if err := readJSON("ROLEWRIGHT_SETTINGS", &in.settings); err != nil {
		return nil, err
	}
	if in.Object.Object == nil {
		return nil, errors.New("the input has no object")
	}
	return in, nil
}

// readJSON reads the file that a variable names.
func readJSON(variable string, into any) error {
	data, err := os.ReadFile(os.Getenv(variable))
	if err == nil {
		err = utiljson.Unmarshal(data, into) // whole numbers stay whole: templates print floats as 1e+07
	}
	if err != nil {
		return fmt.Errorf("%s: %w", variable, err)
	}
	return nil
}

// The annotations of helm-operator.
const annotationPrefix = "helm.sdk.operatorframework.io/"

// annotated returns the boolean that an annotation of the object gives, or otherwise if it gives none.
func (in *input) annotated(name string, otherwise bool) (value, said bool) {
	text, there := in.Object.GetAnnotations()[annotationPrefix+name]
	if !there {
		return otherwise, false
	}
	value, err := strconv.ParseBool(text)
	if err != nil {
		fmt.Fprintf(os.Stderr, "annotation %s%s: %q is neither true nor false; it is ignored\n", annotationPrefix, name, text)
		return otherwise, false
	}
	return value, true
}

// owner returns an owner reference to the object for what the release has. It does not block the owner's deletion: an API
// server may allow that only to those who may update the owner's finalizers.
func (in *input) owner() metav1.OwnerReference {
	ref := *metav1.NewControllerRef(&in.Object, in.Object.GroupVersionKind())
	ref.BlockOwnerDeletion = nil
	return ref
}
