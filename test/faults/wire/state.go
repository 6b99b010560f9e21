package wire

import (
	"encoding/json"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// forever is longer than any campaign.
const forever = time.Duration(math.MaxInt64)

// state is what the API server has reported about the objects in a streaming list, and after it.
type state struct {
	objects  map[string]event // by namespace and name
	bookmark json.RawMessage  // the bookmark that ended the list
}

// observe reports whether the list is complete, and e has completed or changed it.
func (s *state) observe(e event) bool {
	key := e.meta.Namespace + "/" + e.meta.Name
	switch e.Type {
	case "ADDED", "MODIFIED":
		s.objects[key] = e
	case "DELETED":
		delete(s.objects, key)
	case "BOOKMARK":
		if e.meta.Annotations[metav1.InitialEventsAnnotationKey] != "true" {
			return false
		}
		s.bookmark = e.Object
	default:
		return false
	}
	return s.bookmark != nil
}

// answer returns the beginning of a streaming list with s as the present state, at this resource version.
func (s *state) answer(resourceVersion string) answer {
	is := answer{signature: "stream", code: http.StatusOK}
	for _, key := range slices.Sorted(maps.Keys(s.objects)) {
		e := s.objects[key]
		is.signature += " " + e.meta.UID + "/" + e.meta.ResourceVersion
		is.body = append(is.body, line("ADDED", e.Object)...)
	}
	is.body = append(is.body, line("BOOKMARK", withVersion(s.bookmark, resourceVersion))...)
	return is
}

// withVersion returns a bookmark with another resource version.
func withVersion(bookmark json.RawMessage, resourceVersion string) json.RawMessage {
	var object map[string]any
	if json.Unmarshal(bookmark, &object) != nil {
		return bookmark
	}
	if m, ok := object["metadata"].(map[string]any); ok {
		m["resourceVersion"] = resourceVersion
	}
	data, err := json.Marshal(object)
	if err != nil { // it was JSON before
		panic(err)
	}
	return data
}

// line returns an event in the form of a stream.
func line(kind string, object json.RawMessage) []byte {
	data, err := json.Marshal(event{Type: kind, Object: object})
	if err != nil { // it was JSON before
		panic(err)
	}
	return append(data, '\n')
}
