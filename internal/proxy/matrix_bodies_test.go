package proxy

import (
	"net/http"
	"strings"
)

// posts makes each cell a POST that creates an object.
func posts(all []cell) []cell {
	for i := range all {
		c := &all[i]
		c.name = "POST " + c.name
		if c.of.kind == "" {
			c.of = configMapKind()
		}
		if c.method == "" {
			c.method = http.MethodPost
		}
		if c.body == "" && !c.asIs {
			c.body = c.of.object("")
		}
		if c.code == 0 {
			c.code = http.StatusCreated
		}
		if c.want == "" {
			c.want = unmarked
		}
	}
	return all
}

// alreadyOwned are bodies that already have owner references or annotations.
func alreadyOwned() []cell {
	ourAnnotations := strings.TrimPrefix(ours, free)
	all := []cell{
		{name: "with the owner's reference", body: configMapKind().object(`,"ownerReferences":[$OWN]`), want: reference},
		{name: "with the owner's reference in YAML", media: mediaYAML, body: configMapKind().object(`,"ownerReferences":[$OWN]`), want: reference},
		{name: "with the owner's reference in protobuf", media: mediaProtobuf, body: configMapKind().object(`,"ownerReferences":[$OWN]`), want: reference},
		{name: "with the owner's annotations", away: true, body: configMapKind().object(ourAnnotations), want: annotated},
		{name: "with another controller", body: configMapKind().object(others), want: reference},
		{name: "with another controller in protobuf", media: mediaProtobuf, body: configMapKind().object(others), want: reference},
		{name: "with another controller elsewhere", away: true, body: configMapKind().object(others), want: annotated},
		{name: "with another owner and the owner", body: configMapKind().object(`,"ownerReferences":[$OTHER,$OWN]`), want: reference},
		{name: "with null references", body: configMapKind().object(`,"ownerReferences":null`), want: reference},
		{name: "with no references", body: configMapKind().object(`,"ownerReferences":[]`), want: reference},
		{name: "with null annotations", away: true, body: configMapKind().object(`,"annotations":null`), want: annotated},
		{name: "with other annotations", away: true, body: configMapKind().object(`,"annotations":{"a":"\u00e9"}`), want: annotated},
		{name: "kept from owners", body: configMapKind().object(keptFree), want: unmarked},
		{name: "kept from owners in protobuf", media: mediaProtobuf, body: configMapKind().object(keptFree), want: unmarked},
		{name: "kept from owners elsewhere", away: true, body: configMapKind().object(keptFree), want: unmarked},
		{name: "with another word for the owner", body: configMapKind().object(`,"annotations":{"rolewright.dev/owner":"some"}`), want: reference},
		{name: "injecting nothing", by: asker{silent: true}, want: unmarked},
		{name: "of a namespace in the body", body: configMapKind().object(`,"namespace":"$NAMESPACE"`), want: reference},
		{name: "of another namespace in the body", body: configMapKind().object(`,"namespace":"another"`), code: http.StatusBadRequest, want: unmarked},
		{name: "what is there already", before: free, body: configMapKind().object(""), code: http.StatusConflict, want: unmarked},
		{name: "of a kind that is not there", of: resource{apiVersion: "v1", kind: "Nothing", plural: "nothings"}, code: http.StatusNotFound},
	}
	for i := range all {
		if all[i].media == "" {
			all[i].media = mediaJSON
		}
	}
	return posts(all)
}

// headers are different spellings of the same request headers.
func headers() []cell {
	const partial, table = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1", ";as=Table;g=meta.k8s.io;v=v1"
	return posts([]cell{
		{name: "with a charset", media: mediaJSON + "; charset=utf-8", want: reference},
		{name: "in capitals", media: "Application/JSON", want: reference},
		{name: "without a Content-Type", want: reference},
		{name: "YAML without a Content-Type", asIs: true, body: "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: $NAME}\n", code: http.StatusBadRequest},
		{name: "JSON as YAML", media: mediaYAML, asIs: true, body: configMapKind().object(""), want: reference},
		{name: "YAML as JSON", media: mediaJSON, asIs: true, body: "kind: ConfigMap\n", code: http.StatusBadRequest},
		{name: "as text", media: "text/plain", asIs: true, code: http.StatusUnsupportedMediaType},
		{name: "as nonsense", media: "nonsense", asIs: true, code: http.StatusUnsupportedMediaType},
		{name: "as a form", media: "application/x-www-form-urlencoded", asIs: true, code: http.StatusUnsupportedMediaType},
		{name: "of a patch", media: mediaMerge, asIs: true, code: http.StatusUnsupportedMediaType},
		{name: "packed", media: mediaJSON, packed: true, code: http.StatusBadRequest},
		{name: "in chunks", media: mediaJSON, chunked: true, want: reference},
		{name: "YAML in chunks elsewhere", media: mediaYAML, chunked: true, away: true, want: annotated},
		{name: "accepting protobuf", media: mediaJSON, accept: mediaProtobuf, code: http.StatusCreated, refused: http.StatusNotAcceptable},
		{name: "as client-go does", media: mediaProtobuf, accept: mediaProtobuf + ",application/json", want: reference},
		{name: "as controller-runtime does", media: mediaProtobuf, accept: mediaProtobuf + ", */*", away: true, want: annotated},
		{name: "protobuf, answered with metadata", media: mediaProtobuf, accept: mediaJSON + partial, want: reference},
		{name: "protobuf, answered with a table", media: mediaProtobuf, accept: mediaJSON + table, want: reference},
		{name: "accepting a table", media: mediaJSON, accept: mediaJSON + table, want: reference},
		{name: "accepting metadata", media: mediaJSON, accept: mediaJSON + partial, want: reference},
		{name: "accepting images", media: mediaJSON, accept: "image/png", code: http.StatusNotAcceptable, refused: http.StatusNotAcceptable},
		{name: "pretty", media: mediaJSON, query: "?pretty=true", want: reference},
		{name: "by a named manager", media: mediaJSON, query: "?fieldManager=someone", want: reference},
		{
			name: "PATCH without a Content-Type", method: http.MethodPatch, before: free, body: `{"data":{"b":"2"}}`,
			code: http.StatusUnsupportedMediaType,
		},
		{
			name: "PATCH with a charset", by: asker{adopt: true}, method: http.MethodPatch, media: mediaMerge + ";charset=utf-8", before: free,
			body: `{"data":{"b":"2"}}`, code: http.StatusOK, want: reference,
		},
		{
			name: "PATCH in plain JSON", by: asker{adopt: true}, method: http.MethodPatch, media: mediaJSON, before: free,
			body: `{"data":{"b":"2"}}`, code: http.StatusUnsupportedMediaType,
		},
	})
}

// spellings are bodies that write the same object in unusual ways, or with fields that the API server drops.
func spellings() []cell {
	const strict, warn, ignore = "?fieldValidation=Strict", "?fieldValidation=Warn", "?fieldValidation=Ignore"
	numbers := `{"apiVersion":"$GROUP/v1alpha1","kind":"Thing","metadata":{"name":"$NAME"},"spec":{` +
		`"a":1.0,"b":1e3,"c":9007199254740993,"d":0.1000000000000000055511151231257827,"e":-0,"f":12345678901234567890,"g":1E-7,` +
		`"h":"\u00e9\u2028\ud83d\ude00\/\u003c","\u0069":[],"j":{},"k":null,"l":""}}`
	spaced := "\n { \"kind\" : \"ConfigMap\",\t\"apiVersion\":\"v1\", \"data\":{\"z\":\"\\u007a\",\"a\":\"\\ud800\"} ,\r\n \"metadata\" : { \"name\":\"$NAME\" } }\n\n"
	twice := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x","name":"$NAME"},"data":{"a":"1"},"data":{"a":"2","a":"3"}}`
	unknown := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"$NAME","colour":"red"},"data":{"a":"1"},"size":3}`
	document := "# a comment\napiVersion: v1\nkind: ConfigMap\nmetadata: &m\n  name: $NAME\n  labels: {<<: {a: b}}\ndata:\n  a: |\n    x\n    y\n  b: !!str 1\n  c: 'yes'\n---\nkind: Other\n"
	return posts([]cell{
		{name: "odd numbers and escapes", of: thingKind(), media: mediaJSON, body: numbers, asIs: true, want: reference},
		{name: "odd numbers and escapes elsewhere", of: thingKind(), away: true, media: mediaJSON, body: numbers, asIs: true, want: annotated},
		{name: "unusual space", media: mediaJSON, body: spaced, asIs: true, want: reference},
		{name: "members twice", media: mediaJSON, body: twice, asIs: true, want: reference},
		{name: "members twice, warned", media: mediaJSON, query: warn, body: twice, asIs: true, away: true, want: annotated},
		{name: "members twice, ignored", media: mediaJSON, query: ignore, body: twice, asIs: true, want: reference},
		{name: "members twice, strict", media: mediaJSON, query: strict, body: twice, asIs: true, code: http.StatusBadRequest},
		{name: "metadata twice", media: mediaJSON, asIs: true, body: `{"apiVersion":"v1","metadata":{"name":"x","labels":{"a":"b"}},"kind":"ConfigMap","metadata":{"name":"$NAME"}}`, want: reference},
		{name: "metadata twice of a custom resource", of: thingKind(), media: mediaJSON, asIs: true, body: `{"apiVersion":"$GROUP/v1alpha1","metadata":{"name":"x","labels":{"a":"b"}},"kind":"Thing","metadata":{"name":"$NAME"}}`, want: reference},
		{name: "unknown fields", media: mediaJSON, body: unknown, asIs: true, want: reference},
		{name: "unknown fields, warned", media: mediaJSON, query: warn, body: unknown, asIs: true, want: reference},
		{name: "unknown fields, strict", media: mediaJSON, query: strict, body: unknown, asIs: true, code: http.StatusBadRequest},
		{name: "unknown fields in YAML, warned", media: mediaYAML, query: warn, body: unknown, want: reference},
		{name: "fields in other case", media: mediaJSON, asIs: true, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"$NAME","OwnerReferences":[$OTHER]},"Metadata":{"name":"x"}}`, want: reference},
		{name: "a YAML document", media: mediaYAML, body: document, asIs: true, want: reference},
		{name: "a YAML document, strict", media: mediaYAML, query: strict, body: document, asIs: true, want: reference},
		{name: "a List", media: mediaJSON, asIs: true, body: `{"apiVersion":"v1","kind":"List","items":[` + configMapKind().object("") + `]}`, code: http.StatusBadRequest},
		{name: "a List of config maps", media: mediaJSON, asIs: true, body: `{"apiVersion":"v1","kind":"ConfigMapList","metadata":{},"items":[` + configMapKind().object("") + `]}`, code: http.StatusBadRequest},
		{name: "a List of custom resources", of: thingKind(), media: mediaJSON, asIs: true, body: `{"apiVersion":"$GROUP/v1alpha1","kind":"ThingList","metadata":{},"items":[]}`, code: http.StatusUnprocessableEntity},
		{name: "another kind", media: mediaJSON, body: leaseKind().object(""), code: http.StatusBadRequest},
		{name: "no kind", media: mediaJSON, body: `{"metadata":{"name":"$NAME"},"data":{"a":"1"}}`, want: reference},
		{name: "no metadata", media: mediaJSON, body: `{"apiVersion":"v1","kind":"ConfigMap"}`, code: http.StatusUnprocessableEntity},
		{name: "null metadata", media: mediaJSON, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":null}`, code: http.StatusUnprocessableEntity},
		{name: "an invalid object", media: mediaJSON, body: configMapKind().object(`,"labels":{"a b":"c"}`), code: http.StatusUnprocessableEntity},
	})
}

// lossy are bodies that would lose something if the proxy wrote the mark into them.
func lossy() []cell {
	const strict, ignore = "?fieldValidation=Strict", "?fieldValidation=Ignore"
	doubled := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: $NAME}\ndata: {a: x, a: z}\n"
	scattered := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"$NAME","ownerReferences":[$OTHER]},"metadata":{"ownerReferences":[$OTHER]}}`
	all := []cell{
		{name: "POST a key twice in YAML", method: http.MethodPost, media: mediaYAML, body: doubled, code: http.StatusCreated, want: reference},
		{name: "POST a key twice in YAML, strict", method: http.MethodPost, media: mediaYAML, query: strict, body: doubled, code: http.StatusBadRequest, want: unmarked},
		{name: "POST a key twice in YAML, ignored", method: http.MethodPost, media: mediaYAML, query: ignore, body: doubled, code: http.StatusCreated, want: reference},
		{name: "POST references in two places", method: http.MethodPost, media: mediaJSON, body: scattered, code: http.StatusCreated, want: reference},
		{name: "PUT a key twice in YAML to the owner's", before: ours, method: http.MethodPut, media: mediaYAML, body: doubled, code: http.StatusOK, want: reference},
		{name: "PUT a key twice in YAML to no one's", before: free, method: http.MethodPut, media: mediaYAML, body: doubled, code: http.StatusOK, want: unmarked},
		{name: "apply a key twice in YAML to the owner's", before: ours, method: http.MethodPatch, query: applying, media: mediaApply, body: doubled, code: http.StatusOK, want: reference},
		{name: "apply JSON", method: http.MethodPatch, query: applying, media: mediaApply, body: configMapKind().object(""), code: http.StatusCreated, want: reference},
	}
	for i := range all {
		all[i].of, all[i].asIs = configMapKind(), true
	}
	return all
}

// malformed are bodies that the API server cannot read as an object.
func malformed() []cell {
	all := []cell{
		{name: "broken JSON", media: mediaJSON, broken: true},
		{name: "broken YAML", media: mediaYAML, asIs: true, body: "kind: [ConfigMap\n"},
		{name: "broken protobuf", media: mediaProtobuf, broken: true},
		{name: "a list", media: mediaJSON, asIs: true, body: "[]"},
		{name: "null", media: mediaJSON, asIs: true, body: "null", code: http.StatusUnprocessableEntity},
		{name: "a string as YAML", media: mediaYAML, asIs: true, body: "text"},
		{name: "two values", media: mediaJSON, asIs: true, body: configMapKind().object("") + "{}"},
		{name: "nothing", media: mediaJSON, asIs: true},
		{name: "metadata of another type", media: mediaJSON, body: `{"apiVersion":"v1","kind":"ConfigMap","metadata":[]}`},
		{name: "references of another type", media: mediaJSON, body: configMapKind().object(`,"ownerReferences":{}`)},
		{name: "annotations of another type", media: mediaJSON, body: configMapKind().object(`,"annotations":{"a":1}`)},
		{name: "broken apply", method: http.MethodPatch, query: applying, media: mediaApply, asIs: true, body: "kind: [ConfigMap\n"},
		{name: "broken merge patch", before: free, method: http.MethodPatch, media: mediaMerge, broken: true},
		{name: "broken strategic merge patch", before: free, method: http.MethodPatch, media: mediaStrategic, broken: true},
		{name: "broken JSON patch", before: free, method: http.MethodPatch, media: mediaJSONPatch, asIs: true, body: `{"op":"add"}`},
	}
	for i := range all {
		all[i].by = asker{adopt: true}
		if all[i].code == 0 {
			all[i].code = http.StatusBadRequest
		}
	}
	return posts(all)
}

// subresources are requests for subresources, which neither add nor remove a mark.
func subresources() []cell {
	scale := `{"apiVersion":"autoscaling/v1","kind":"Scale","metadata":{"name":"$NAME","namespace":"$NAMESPACE"},"spec":{"replicas":5}}`
	status := func(r resource, metadata string) string {
		return strings.TrimSuffix(r.object(metadata), "}") + `,"status":{"phase":"x"}}`
	}
	conditions := `{"status":{"conditions":[{"type":"a","status":"True","reason":"A","message":"","lastTransitionTime":"2020-01-01T00:00:00Z"}]}}`
	binding := `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"$NAME"},"target":{"kind":"Node","name":"no-such-node"}}`
	all := []cell{
		// The status of a Service and the binding of a Pod copy metadata into the object.
		{name: "PATCH the status of no one's service", of: serviceKind(), sub: "/status", method: http.MethodPatch, before: free, media: mediaMerge, body: conditions, want: unmarked},
		{name: "PATCH the status of no one's service elsewhere", of: serviceKind(), away: true, sub: "/status", method: http.MethodPatch, before: free, media: mediaStrategic, body: conditions, want: unmarked},
		{name: "PATCH the status of the owner's service", of: serviceKind(), sub: "/status", method: http.MethodPatch, before: ours, media: mediaMerge, body: conditions, want: reference},
		{name: "bind a pod elsewhere", of: podKind(), away: true, sub: "/binding", method: http.MethodPost, before: free, media: mediaJSON, body: binding, code: http.StatusCreated, want: unmarked},
		{
			name: "request a token", of: serviceAccountKind(), sub: "/token", method: http.MethodPost, before: free, media: mediaJSON, code: http.StatusCreated, want: unmarked, blind: true,
			body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","metadata":{},"spec":{"audiences":["a"]}}`,
		},
		{name: "PATCH the status of no one's", sub: "/status", method: http.MethodPatch, before: free, media: mediaMerge, body: `{"status":{"phase":"x"}}`, want: unmarked},
		{name: "PATCH the status of the owner's", sub: "/status", method: http.MethodPatch, before: ours, media: mediaMerge, body: `{"status":{"phase":"x"}}`, want: reference},
		{name: "apply the status of no one's", sub: "/status", method: http.MethodPatch, query: "?fieldManager=status", before: free, media: mediaApply, body: status(thingKind(), ""), want: unmarked},
		{name: "apply the status of the owner's", sub: "/status", method: http.MethodPatch, query: "?fieldManager=status", before: ours, media: mediaApply, body: status(thingKind(), ""), want: reference},
		{name: "apply the status of nothing", sub: "/status", method: http.MethodPatch, query: "?fieldManager=status", media: mediaApply, body: status(thingKind(), ""), code: http.StatusNotFound, want: unmarked},
		{name: "JSON-patch the status elsewhere", sub: "/status", method: http.MethodPatch, away: true, before: free, media: mediaJSONPatch, body: `[{"op":"add","path":"/status","value":{"phase":"x"}}]`, want: unmarked},
		{name: "PUT the scale of no one's", sub: "/scale", method: http.MethodPut, before: free, media: mediaJSON, body: scale, want: unmarked},
		{name: "PUT the scale of the owner's", sub: "/scale", method: http.MethodPut, before: ours, media: mediaJSON, body: scale, want: reference},
		{name: "PATCH the scale of no one's", sub: "/scale", method: http.MethodPatch, before: free, media: mediaMerge, body: `{"spec":{"replicas":5}}`, want: unmarked},
		{name: "PATCH the scale of nothing", sub: "/scale", method: http.MethodPatch, media: mediaMerge, body: `{"spec":{"replicas":5}}`, code: http.StatusNotFound, want: unmarked},
		{
			name: "bind a pod", of: podKind(), sub: "/binding", method: http.MethodPost, before: free, media: mediaJSON, code: http.StatusCreated, want: unmarked,
			body: binding,
		},
		{
			name: "evict a pod", of: podKind(), sub: "/eviction", method: http.MethodPost, before: free, media: mediaJSON, code: http.StatusCreated, want: unmarked,
			body: `{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"$NAME"}}`,
		},
	}
	for i := range all {
		c := &all[i]
		c.by.adopt = true
		if c.of.kind == "" {
			c.of = thingKind()
		}
		if c.code == 0 {
			c.code = http.StatusOK
		}
	}
	return all
}

// questions create objects that the API server answers and does not store, such as reviews.
func questions() []cell {
	const may = `"resourceAttributes":{"verb":"get","resource":"pods","namespace":"x"}`
	authentication := func(kind, plural, spec string) resource {
		return resource{apiVersion: "authentication.k8s.io/v1", kind: kind, plural: plural, global: true, content: spec}
	}
	authorization := func(kind, plural, spec string) resource {
		return resource{
			apiVersion: "authorization.k8s.io/v1", kind: kind, plural: plural, global: kind != "LocalSubjectAccessReview", content: spec,
		}
	}
	var all []cell
	for _, r := range []resource{
		authentication("TokenReview", "tokenreviews", `,"spec":{"token":"x"}`),
		authentication("SelfSubjectReview", "selfsubjectreviews", ""),
		authorization("SubjectAccessReview", "subjectaccessreviews", `,"spec":{"user":"x",`+may+`}`),
		authorization("SelfSubjectAccessReview", "selfsubjectaccessreviews", `,"spec":{`+may+`}`),
		authorization("SelfSubjectRulesReview", "selfsubjectrulesreviews", `,"spec":{"namespace":"x"}`),
		authorization("LocalSubjectAccessReview", "localsubjectaccessreviews",
			`,"spec":{"user":"x","resourceAttributes":{"verb":"get","resource":"pods","namespace":"$NAMESPACE"}}`),
	} {
		var metadata string
		if !r.global {
			metadata = `"namespace":"$NAMESPACE"`
		}
		for _, media := range []string{mediaJSON, mediaProtobuf} {
			all = append(all, cell{name: "POST " + r.kind + " in " + media, of: r, method: http.MethodPost, media: media, body: r.with(metadata), code: http.StatusCreated, want: unmarked, blind: r.kind == "SelfSubjectRulesReview"})
		}
	}
	return append(all, cell{
		name: "POST a binding", of: resource{apiVersion: "v1", kind: "Binding", plural: "bindings", content: `,"target":{"kind":"Node","name":"n"}`},
		method: http.MethodPost, media: mediaJSON, body: `{"apiVersion":"v1","kind":"Binding","metadata":{"name":"$NAME"},"target":{"kind":"Node","name":"no-such-node"}}`,
		code: http.StatusNotFound, want: unmarked,
	})
}
