package wire

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/rolewright/rolewright/test/faults/plan"
)

// prepare changes the header of a request so that its answer can be read, and leaves the credentials to the upstream.
func prepare(header http.Header) {
	for i, accept := range header.Values("Accept") {
		accept = strings.ReplaceAll(accept, "application/vnd.kubernetes.protobuf", "application/json")
		header["Accept"][i] = strings.ReplaceAll(accept, "application/cbor", "application/json")
	}
	header.Set("Accept-Encoding", "identity")
	header.Del("Authorization")
}

// describe returns what the proxy knows about a request before the answer.
func (p *Proxy) describe(replica string, r *http.Request, body []byte) plan.Request {
	is := plan.Request{Time: time.Now(), Replica: replica, UserAgent: r.UserAgent(), Verb: strings.ToLower(r.Method)}
	info, err := p.infos.NewRequestInfo(r)
	if err != nil || !info.IsResourceRequest {
		is.Resource = r.URL.Path
		return is
	}
	is.Verb, is.Group, is.Version, is.Resource = info.Verb, info.APIGroup, info.APIVersion, info.Resource
	is.Namespace, is.Name = info.Namespace, info.Name
	if info.Subresource != "" {
		is.Resource += "/" + info.Subresource
	}
	if is.Name == "" && is.Verb == "create" {
		is.Name = meta(body).Name
	}
	return is
}

// metadata is the part of an object's metadata that matters here.
type metadata struct {
	Namespace         string            `json:"namespace"`
	Name              string            `json:"name"`
	UID               string            `json:"uid"`
	ResourceVersion   string            `json:"resourceVersion"`
	Generation        int64             `json:"generation"`
	DeletionTimestamp string            `json:"deletionTimestamp"`
	Annotations       map[string]string `json:"annotations"`
}

// meta returns the metadata of an object; empty if data is not an object in JSON.
func meta(data []byte) metadata {
	var object struct {
		Metadata metadata `json:"metadata"`
	}
	if json.Unmarshal(data, &object) != nil {
		return metadata{}
	}
	return object.Metadata
}

// learn adds what an answer or an event says about the object.
func learn(r *plan.Request, m metadata) {
	if r.Name == "" {
		r.Name = m.Name
	}
	if r.Namespace == "" {
		r.Namespace = m.Namespace
	}
	r.UID, r.Generation, r.ResourceVersion, r.Deleted = m.UID, m.Generation, m.ResourceVersion, m.DeletionTimestamp != ""
}

// trace is the record of what went through.
type trace struct {
	mu     sync.Mutex
	list   []*plan.Request
	counts map[[3]string]int
	closed *int // how many records there were when stop was called
}

// begin returns the number of the new record.
func (t *trace) begin(r plan.Request) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts == nil {
		t.counts = map[[3]string]int{}
	}
	key := [3]string{r.Verb, r.Resource, r.Event}
	t.counts[key]++
	r.Occurrence = t.counts[key]
	t.list = append(t.list, &r)
	return len(t.list) - 1
}

// amend changes a record.
func (t *trace) amend(number int, change func(*plan.Request)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	change(t.list[number])
}

// stop leaves later records out of snapshots.
func (t *trace) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed == nil {
		n := len(t.list)
		t.closed = &n
	}
}

// snapshot returns the record; with all, including what came after stop.
func (t *trace) snapshot(all bool) []plan.Request {
	t.mu.Lock()
	defer t.mu.Unlock()
	until := len(t.list)
	if t.closed != nil && !all {
		until = *t.closed
	}
	list := make([]plan.Request, 0, until)
	for _, r := range t.list[:until] {
		list = append(list, *r)
	}
	return list
}
