package controller

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"
)

func TestValuesAt(t *testing.T) {
	tree := map[string]any{
		"database": map[string]any{"password": "one", "port": int64(5432), "on": true, "empty": nil},
		"users":    []any{map[string]any{"name": "a", "token": "two"}, map[string]any{"token": 1.5}, "three"},
		"a.b":      "four",
	}
	for path, want := range map[string][]string{
		"database.password": {"one"}, "database": {"one", "5432"}, "users.token": {"two", "1.5"}, "users": {"a", "two", "1.5", "three"},
		"missing": nil, "database.password.deeper": nil, "database.missing": nil,
	} {
		if diff := cmp.Diff(want, valuesAt(nil, tree, strings.Split(path, "."))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", path, diff)
		}
	}
}

func TestCredentials_AreReadWhenTheyAreNeeded(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	config := &rest.Config{BearerTokenFile: file, BearerToken: "first", Password: "pass", TLSClientConfig: rest.TLSClientConfig{KeyData: []byte("key")}}
	for _, token := range []string{"second", "third"} {
		if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff([]string{"first", "pass", "key", token}, credentials(config)); diff != "" {
			t.Errorf("credentials (-want +got):\n%s", diff)
		}
	}
}
