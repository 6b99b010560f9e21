package objectbody

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// magic precedes every message of Kubernetes: a runtime.Unknown, which contains the
// kind and the object.
const magic = "k8s\x00"

// Field numbers of Kubernetes' messages.
const (
	unknownRaw       protowire.Number = 2 // the object
	objectMetadata   protowire.Number = 1 // of every object, and of every list
	listItems        protowire.Number = 2
	metaReferences   protowire.Number = 13
	metaAnnotations  protowire.Number = 12
	annotationsKey   protowire.Number = 1
	annotationsValue protowire.Number = 2
)

type protobuf struct {
	runtime.TypeMeta
	// envelope is the body without the magic; raw is envelope[start:end], with
	// its own tag and length from field on.
	envelope          []byte
	field, start, end int
}

func decodeProtobuf(body []byte) (protobuf, error) {
	envelope, ok := bytes.CutPrefix(body, []byte(magic))
	if !ok {
		return protobuf{}, errors.New("not protobuf of Kubernetes")
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(envelope); err != nil {
		return protobuf{}, fmt.Errorf("not protobuf of Kubernetes: %w", err)
	}
	p := protobuf{TypeMeta: unknown.TypeMeta, envelope: envelope}
	err := eachField(envelope, unknownRaw, func(field, start, end int) error {
		p.field, p.start, p.end = field, start, end // the last one counts
		return nil
	})
	if err != nil {
		return protobuf{}, err
	}
	if p.end == 0 {
		return protobuf{}, errors.New("protobuf without an object")
	}
	return p, nil
}

func (p protobuf) raw() []byte { return p.envelope[p.start:p.end] }

func (p protobuf) meta() (Meta, error) {
	md, err := protobufMetadata(p.raw())
	return md.meta(p.APIVersion, p.Kind), err
}

// eachField calls f for every occurrence of a field that has a length.
func eachField(message []byte, number protowire.Number, f func(field, start, end int) error) error {
	for at := 0; at < len(message); {
		n, wire, tag := protowire.ConsumeTag(message[at:])
		if tag < 0 {
			return fmt.Errorf("not protobuf: %w", protowire.ParseError(tag))
		}
		size := protowire.ConsumeFieldValue(n, wire, message[at+tag:])
		if size < 0 {
			return fmt.Errorf("not protobuf: %w", protowire.ParseError(size))
		}
		if n == number && wire == protowire.BytesType {
			value, _ := protowire.ConsumeBytes(message[at+tag:])
			end := at + tag + size
			if err := f(at, end-len(value), end); err != nil {
				return err
			}
		}
		at += tag + size
	}
	return nil
}

// protobufMetadata reads an object's metadata. If it comes in pieces, each is
// decoded on top of the one before, as always in protobuf.
func protobufMetadata(object []byte) (metadata, error) {
	var md metav1.ObjectMeta
	err := eachField(object, objectMetadata, func(_, start, end int) error {
		return md.Unmarshal(object[start:end])
	})
	if err != nil {
		return metadata{}, fmt.Errorf("metadata: %w", err)
	}
	return metadata{
		Name: md.Name, GenerateName: md.GenerateName, Namespace: md.Namespace,
		UID: md.UID, ResourceVersion: md.ResourceVersion,
		OwnerReferences: md.OwnerReferences, Annotations: md.Annotations,
	}, nil
}

// addToProtobuf adds the mark as one more piece of the object's metadata, at the
// end, so that the rest stays as it is. A later piece adds its elements to lists,
// and of a map's entries with the same key the later one counts.
func addToProtobuf(body []byte, m Mark) ([]byte, error) {
	p, err := decodeProtobuf(body)
	if err != nil {
		return nil, err
	}
	meta, err := p.meta()
	if err != nil {
		return nil, err
	}
	if m.in(meta) {
		return body, nil
	}
	piece, err := m.protobuf()
	if err != nil {
		return nil, err
	}
	object := appendField(slices.Clone(p.raw()), objectMetadata, piece)
	marked := append([]byte(magic), p.envelope[:p.field]...)
	marked = appendField(marked, unknownRaw, object)
	return append(marked, p.envelope[p.end:]...), nil
}

// protobuf is the mark as a message of metadata.
func (m Mark) protobuf() ([]byte, error) {
	if m.Reference != nil {
		ref, err := m.Reference.Marshal()
		if err != nil {
			return nil, fmt.Errorf("encode protobuf: %w", err)
		}
		return appendField(nil, metaReferences, ref), nil
	}
	var piece []byte
	for _, k := range slices.Sorted(maps.Keys(m.Annotations)) {
		entry := appendField(nil, annotationsKey, []byte(k))
		entry = appendField(entry, annotationsValue, []byte(m.Annotations[k]))
		piece = appendField(piece, metaAnnotations, entry)
	}
	return piece, nil
}

func appendField(message []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), value)
}
