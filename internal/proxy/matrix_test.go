package proxy

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/test/testenv"
)

// The owner marks that an object may have. Any other mark is described in words
// where it is found, and equals none of these.
const (
	unmarked  = "no mark"
	reference = "one owner reference"
	annotated = "both annotations"
)

// cell is one request of the matrix. It is sent twice, directly and through the
// proxy, each time for another object.
type cell struct {
	name string
	by   asker
	of   resource
	// away puts the object into a namespace that is not the owner's.
	away bool
	// before is metadata of the object that is there already; empty: there is
	// none.
	before string
	method string
	// sub follows the object's path, query its end.
	sub, query string
	// media is the Content-Type; empty: the request has none.
	media  string
	accept string
	// body is JSON, which is sent in the encoding that media names; asIs sends it
	// unchanged.
	body string
	asIs bool
	// packed compresses the body, chunked does not say how long it is, broken
	// leaves its last bytes out.
	packed, chunked, broken bool
	// code is the answer's; refused is the proxy's own, if it does not forward
	// what the API server would take.
	code, refused int
	want          string
	// blind leaves the answer's body out of the comparison: two are never alike.
	blind bool
}

// asker says with which grant a request is sent.
type asker struct{ global, adopt, silent bool }

// resource is a kind of which the matrix has objects. $GROUP stands for the
// group of the custom ones.
type resource struct {
	apiVersion, kind, plural string
	global                   bool
	// custom kinds have no protobuf.
	custom bool
	// byPut kinds are created by PUT too.
	byPut   bool
	content string
}

// object is the JSON of an object with more metadata.
func (r resource) object(metadata string) string {
	return r.with(`"name":"$NAME"` + metadata)
}

func (r resource) with(metadata string) string {
	return `{"apiVersion":"` + r.apiVersion + `","kind":"` + r.kind + `","metadata":{` + metadata + `}` + r.content + `}`
}

// path is where objects of the kind are.
func (r resource) path(namespace string) string {
	prefix := "/apis/" + r.apiVersion
	if r.apiVersion == "v1" {
		prefix = "/api/v1"
	}
	if !r.global {
		prefix += "/namespaces/" + namespace
	}
	return prefix + "/" + r.plural
}

// matrix is the state that all cells share.
type matrix struct {
	// apiServer and proxied are the two ways there.
	apiServer          string
	direct             *http.Client
	proxy              *Proxy
	clients            map[asker]*http.Client
	home, away         string
	group              string
	namespaced, global Owner
	// others own things as well, in each namespace and above.
	others map[string]Owner
}

// askers are all clients that send requests.
func askers() []asker {
	return []asker{{}, {adopt: true}, {silent: true}, {global: true}, {global: true, adopt: true}}
}

func newMatrix(t *testing.T) *matrix {
	t.Helper()
	cfg := testenv.Config(t)
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	m := &matrix{
		apiServer: cfg.Host, direct: client, proxy: startProxy(t, cfg), clients: map[asker]*http.Client{},
		home: testenv.Namespace(t, cfg), away: testenv.Namespace(t, cfg),
	}
	thing := testenv.CRD(t, cfg, testenv.WithKind("Thing"), scalable)
	m.group = thing.Group
	world := testenv.CRD(t, cfg, testenv.WithKind("World"), testenv.WithGroup(m.group), testenv.ClusterScoped())
	m.namespaced, m.global = newOwner(t, cfg, thing, m.home), newOwner(t, cfg, world, "")
	m.others = map[string]Owner{
		m.home: newOwner(t, cfg, thing, m.home), m.away: newOwner(t, cfg, thing, m.away), "": newOwner(t, cfg, world, ""),
	}
	account := `{"apiVersion":"v1","kind":"ServiceAccount","metadata":{"name":"runner"}}` // of the pods
	for _, namespace := range []string{m.home, m.away} {
		url := m.apiServer + "/api/v1/namespaces/" + namespace + "/serviceaccounts"
		if a := roundTrip(t, m.direct, http.MethodPost, url, http.Header{"Content-Type": {mediaJSON}}, strings.NewReader(account)); a.Code != http.StatusCreated {
			t.Fatalf("create a service account: %d %s", a.Code, a.Text)
		}
	}
	for _, by := range askers() {
		_, m.clients[by], _ = admit(t, m.proxy, Grant{
			RunID: fmt.Sprintf("%+v", by), Owner: m.owner(by), Inject: !by.silent, AdoptUnowned: by.adopt,
		})
	}
	return m
}

// scalable adds the scale subresource.
func scalable(crd *apiextensionsv1.CustomResourceDefinition) {
	for i := range crd.Spec.Versions {
		crd.Spec.Versions[i].Subresources.Scale = &apiextensionsv1.CustomResourceSubresourceScale{
			SpecReplicasPath: ".spec.replicas", StatusReplicasPath: ".status.replicas",
		}
	}
}

// newOwner creates a custom resource that can own objects of a run.
func newOwner(t *testing.T, cfg *rest.Config, gvk schema.GroupVersionKind, namespace string) Owner {
	t.Helper()
	objects, err := dynamic.NewForConfig(cfg)
	if err != nil {
		t.Fatalf("make a client: %v", err)
	}
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(gvk)
	object.SetName(testenv.Random("owner-"))
	gvr := resourceOf(gvk)
	made, err := objects.Resource(gvr).Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("create the owner: %v", err)
	}
	return Owner{GVK: gvk, Namespace: namespace, Name: made.GetName(), UID: made.GetUID()}
}

func (m *matrix) owner(by asker) Owner {
	if by.global {
		return m.global
	}
	return m.namespaced
}

// owned is the mark of an object that the cell's request makes the owner's.
func (c cell) owned() string {
	if c.by.global || !c.of.global && !c.away {
		return reference
	}
	return annotated
}

// namespace is where the cell's object is.
func (m *matrix) namespace(c cell) string {
	switch {
	case c.of.global:
		return ""
	case c.away:
		return m.away
	}
	return m.home
}

// fill puts this test's values into a template. $MARK is metadata that makes an
// object the owner's, $OWN and $OTHER are references to the owner and to someone
// else.
func (m *matrix) fill(c cell, name, template string) string {
	owner, other := m.owner(c.by), m.others[m.namespace(c)]
	mark := `,"ownerReferences":[$OWN]`
	if c.owned() == annotated {
		mark = `,"annotations":{"` + annotationOwner + `":"` + m.home + `/` + owner.Name + `","` + annotationOwnerType + `":"Thing.` + m.group + `"}`
	}
	return strings.NewReplacer(
		"$NAMESPACE", m.namespace(c), "$NAME", name, // the longer one first
		"$GROUP", m.group,
		"$OWN", referenceTo(owner, ""), "$OTHER", referenceTo(other, `,"controller":true,"blockOwnerDeletion":true`),
	).Replace(strings.ReplaceAll(template, "$MARK", mark))
}

func referenceTo(o Owner, more string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"name":%q,"uid":%q%s}`, o.GVK.GroupVersion(), o.GVK.Kind, o.Name, o.UID, more)
}

// answer is an answer as a client gets it, with its body decoded.
type answer struct {
	Code     int
	Type     string
	Warnings []string
	Text     string
}

// request sends a cell's request for the object of that name.
func (m *matrix) request(t *testing.T, client *http.Client, server string, c cell, name string) answer {
	t.Helper()
	path := c.of.path(m.namespace(c))
	if c.method != http.MethodPost || c.sub != "" {
		path += "/" + name
	}
	var body io.Reader = bytes.NewReader(c.encoded(t, m.fill(c, name, c.body)))
	if c.chunked {
		body = io.MultiReader(body) // of which net/http does not know the length
	}
	header := http.Header{"Content-Type": {c.media}, "Accept": {c.accept}}
	if server == m.apiServer && strings.Contains(c.accept, mediaProtobuf) {
		header.Set("Accept", mediaJSON) // which is all that runs are answered in
	}
	if c.packed {
		header.Set("Content-Encoding", "gzip")
	}
	return roundTrip(t, client, c.method, server+m.fill(c, name, path+c.sub)+m.fill(c, name, c.query), header, body)
}

func roundTrip(t *testing.T, client *http.Client, method, url string, header http.Header, body io.Reader) answer {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatalf("make a request: %v", err)
	}
	for key, values := range header {
		if values[0] != "" {
			req.Header[key] = values
		}
	}
	req.Header.Set("User-Agent", "matrix/1") // it names the field manager
	resp, err := client.Do(req)
	if err != nil {
		t.Fatalf("%s %s: %v", method, url, err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer of %s %s: %v", method, url, err)
	}
	return answer{resp.StatusCode, resp.Header.Get("Content-Type"), resp.Header["Warning"], string(text)}
}

// stored is the object as it is now.
func (m *matrix) stored(t *testing.T, c cell, name string) answer {
	t.Helper()
	url := m.apiServer + m.fill(c, name, c.of.path(m.namespace(c))) + "/" + name
	return roundTrip(t, m.direct, http.MethodGet, url, http.Header{"Accept": {"application/json"}}, http.NoBody)
}

// prepare creates the object that is there before the request.
func (m *matrix) prepare(t *testing.T, c cell, name string) {
	t.Helper()
	url := m.apiServer + m.fill(c, name, c.of.path(m.namespace(c))) + "/" + name
	if c.of.global {
		ctx := context.WithoutCancel(t.Context())
		t.Cleanup(func() {
			req, err := http.NewRequestWithContext(ctx, http.MethodDelete, url, http.NoBody)
			if err != nil {
				t.Fatalf("make a request: %v", err)
			}
			if resp, err := m.direct.Do(req); err == nil {
				_ = resp.Body.Close()
			}
		})
	}
	if c.before == "" {
		return
	}
	body := m.fill(c, name, c.of.object(c.before))
	header := http.Header{"Content-Type": {mediaApply}}
	if a := roundTrip(t, m.direct, http.MethodPatch, url+"?fieldManager=matrix", header, strings.NewReader(body)); a.Code != http.StatusCreated {
		t.Fatalf("create what is there before: %d %s", a.Code, a.Text)
	}
}

// encoded is the body as it is sent.
func (c cell) encoded(t *testing.T, text string) []byte {
	t.Helper()
	body := []byte(text)
	if !c.asIs {
		body = encode(t, mediaType(c.media), body)
	}
	if c.broken {
		body = body[:len(body)/2]
	}
	if c.packed {
		body = packed(body)
	}
	return body
}

func encode(t *testing.T, media string, text []byte) []byte {
	t.Helper()
	var tree any
	var body []byte
	err := kjson.UnmarshalCaseSensitivePreserveInts(text, &tree)
	if err != nil {
		t.Fatalf("the cell's body is not JSON: %v", err)
	}
	switch media {
	case mediaYAML, mediaApply:
		body, err = yaml.JSONToYAML(text)
	case mediaCBOR, mediaApplyCBOR:
		body, err = direct.Marshal(tree)
	case mediaProtobuf:
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
		if err != nil {
			t.Fatalf("the cell's body is of no known kind: %v", err)
		}
		var out bytes.Buffer
		if err := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme).Encode(object, &out); err != nil {
			t.Fatalf("encode as protobuf: %v", err)
		}
		return out.Bytes()
	default:
		body = text
	}
	if err != nil {
		t.Fatalf("encode as %s: %v", media, err)
	}
	return body
}

func TestMatrix_AProxiedWriteStoresWhatADirectOneDoesAndTheOwner(t *testing.T) {
	t.Parallel()
	m := newMatrix(t)
	for _, c := range cells() {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m.compare(t, c)
		})
	}
}

// compare sends a cell's request in both ways.
func (m *matrix) compare(t *testing.T, c cell) {
	t.Helper()
	// Of equal length, which encodings say.
	names := []string{testenv.Random("d"), testenv.Random("p")}
	for _, name := range names {
		m.prepare(t, c, name)
	}
	answers := []answer{
		m.request(t, m.direct, m.apiServer, c, names[0]),
		m.request(t, m.clients[c.by], m.proxy.URL(), c, names[1]),
	}
	for i, want := range []int{c.code, cmp.Or(c.refused, c.code)} {
		if answers[i].Code != want {
			t.Fatalf("answer %d = %d, want %d: %s", i, answers[i].Code, want, answers[i].Text)
		}
	}
	var outcomes []outcome
	for i, name := range names {
		outcomes = append(outcomes, m.outcome(t, c, name, answers[i]))
	}
	if diff := gocmp.Diff(outcomes[0], outcomes[1], cmpopts.IgnoreUnexported(outcome{})); diff != "" && c.refused == 0 {
		t.Errorf("outcome (-direct +proxied):\n%s", diff)
	}
	if got := outcomes[1].mark; got != c.want {
		t.Errorf("mark = %s, want %s", got, c.want)
	}
}

// packed is the body as a client sends it that compresses its bodies.
func packed(plain []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(plain) // a buffer takes everything
	_ = w.Close()
	return out.Bytes()
}
