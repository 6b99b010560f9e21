package proxy

import "testing"

func TestOnlyJSON(t *testing.T) {
	for accept, want := range map[string]string{
		"":                 "application/json",
		"application/json": "application/json",
		"application/json;as=Table;v=v1;g=meta.k8s.io, application/json":    "application/json;as=Table;v=v1;g=meta.k8s.io, application/json",
		"application/vnd.kubernetes.protobuf,application/json;stream=watch": "application/json;stream=watch",
		"application/vnd.kubernetes.protobuf, */*":                          "application/json, */*;q=0.01",
		"text/html, */*;q=0.8":                "application/json;q=0.8, */*;q=0.01",
		"application/vnd.kubernetes.protobuf": "",
		"application/yaml,,text/plain":        "",
	} {
		if got, ok := onlyJSON([]string{accept}); got != want || ok != (want != "") {
			t.Errorf("%q: %q, %t; want %q", accept, got, ok, want)
		}
	}
}
