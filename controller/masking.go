package controller

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/client-go/rest"

	"github.com/rolewright/rolewright/controller/fingerprint"
	"github.com/rolewright/rolewright/internal/contentcopy"
	"github.com/rolewright/rolewright/internal/proxy"
	"github.com/rolewright/rolewright/internal/proxy/objectbody"
	"github.com/rolewright/rolewright/internal/redact"
	"github.com/rolewright/rolewright/internal/vault"
	"github.com/rolewright/rolewright/internal/watches"
)

// secrets are the sources of secret values that are known before runs start. Values
// of Secrets come through the API proxy instead.
type secrets struct {
	vault *vault.Vault
	// paths are the files and directories with vault texts in them.
	paths []string
	// literals are the names in the content that are no secrets, even if they contain
	// the value of one.
	literals *literals
	// unread is the last message about values that could not be read; nil for none.
	unread atomic.Pointer[string]
}

func newSecrets(v *vault.Vault, w watches.Watch, content *contents, inventory string, c *contentcopy.Copy) *secrets {
	if !w.Content.Ansible() {
		return &secrets{vault: v, literals: newLiterals(fingerprint.Roots{})}
	}
	paths := slices.Clone(content.roots.Trees)
	if inventory != "" {
		for _, name := range []string{"group_vars", "host_vars"} {
			paths = append(paths, filepath.Join(filepath.Dir(inventory), name))
		}
	}
	for _, is := range w.Contents() {
		if is.Role != "" {
			paths = append(paths, c.Path(is.Role))
		}
		if is.Playbook != "" {
			paths = append(paths, besidePlaybook(c.Path(is.Playbook))...)
		}
	}
	slices.Sort(paths)
	return &secrets{vault: v, paths: slices.Compact(paths), literals: newLiterals(content.roots)}
}

// besidePlaybook returns the paths where a playbook may have its variables: its
// directory. For a playbook in /, it returns the usual names there instead.
func besidePlaybook(playbook string) []string {
	dir := filepath.Dir(playbook)
	if dir != "/" {
		return []string{dir}
	}
	paths := []string{playbook}
	for _, name := range []string{"group_vars", "host_vars", "vars", "roles"} {
		paths = append(paths, filepath.Join(dir, name))
	}
	return paths
}

// newMasker returns a masker for all secrets of the run of s that are known when it begins.
func (r *reconciler) newMasker(ctx context.Context, s *scope) *redact.Masker {
	m := redact.New(s.key.Name, s.key.Namespace, r.gvk.Kind, r.gvk.Group, s.runID, string(s.object.GetUID()))
	m.Add(ctx, credentials(r.cfg)...)
	vars := []any{r.watch.Vars}
	if r.watch.Finalizer != nil {
		vars = append(vars, r.watch.Finalizer.Vars)
	}
	values, err := s.content.secrets.vault.Values(ctx, s.content.secrets.paths...)
	texts, textErr := s.content.secrets.vault.Texts(ctx, valuesAt(nil, vars, nil)...)
	if err := errors.Join(err, textErr); err != nil {
		level, text := 0, err.Error()
		if before := s.content.secrets.unread.Swap(&text); before != nil && *before == text {
			level = 1 // logged at an earlier run
		}
		s.log.V(level).Info("Not all vault values can be read; those that cannot are not masked. "+
			"Ansible cannot read them either, unless it gets a password that the operator does not have", "error", text)
	}
	if err == nil && textErr == nil {
		s.content.secrets.unread.Store(nil)
	}
	m.Add(ctx, values...)
	m.Add(ctx, texts...)
	if r.gvk.Group == "" && r.gvk.Kind == "Secret" {
		m.Add(ctx, ofSecret(s.object.Object)...)
	}
	trees := append(vars, s.object.Object["spec"], s.object.Object, s.previous.spec, map[string]any{"spec": s.previous.spec})
	for _, path := range r.watch.SecretVars {
		for _, tree := range trees {
			m.Add(ctx, valuesAt(nil, tree, strings.Split(path, "."))...)
		}
	}
	return m
}

// ofSecret returns the values of a Secret, as the API proxy would find them.
func ofSecret(object map[string]any) []string {
	text, _ := json.Marshal(object) // it was decoded from JSON
	values, _ := objectbody.SecretValues("application/json", text)
	return values
}

// secretsOf returns what takes the values of Secrets that a run reads and writes.
func (r *reconciler) secretsOf(s *scope) proxy.Secrets {
	if isChart(r.watch) {
		return besideRecords{s.mask}
	}
	return s.mask
}

// besideRecords leaves out the records of Helm's releases. A run of a chart reads all revisions of them,
// and such large values cannot be searched for, so that everything that the run says would be withheld.
// The program that runs charts shows no record. The values in a record also pass in the Secrets that it writes.
type besideRecords struct{ *redact.Masker }

// Add implements [proxy.Secrets].
func (m besideRecords) Add(ctx context.Context, values ...string) {
	m.Masker.Add(ctx, slices.DeleteFunc(slices.Clone(values), isRecord)...)
}

// isRecord reports whether a value is compressed and encoded like Helm's records, and too large to be a password.
func isRecord(value string) bool {
	const gzipped = "H4sI" // the first bytes in base64
	return len(value) > 16<<10 && strings.HasPrefix(value, gzipped)
}

// masker masks what a run says.
type masker struct {
	*redact.Masker
	literals *literals
	copy     *contentcopy.Copy
}

func (s *scope) masker(m *redact.Masker) masker {
	return masker{m, s.content.secrets.literals, s.content.copy}
}

// Place implements [runner.Placer].
func (m masker) Place(text string) string { return m.copy.Original(text) }

// Mask implements [runner.Masker].
func (m masker) Mask(text string) string { return m.Masker.Mask(m.Place(text)) }

// MaskTail implements [runner.Masker].
func (m masker) MaskTail(text string) string { return m.Masker.MaskTail(m.Place(text)) }

// Name implements [runner.Masker].
func (m masker) Name(name, place string) string {
	text := m.Mask(name)
	if text != name && m.literals.has(name, place) {
		return name
	}
	return text
}

// credentials returns the operator's current credentials. It reads them each time, since tokens in files change.
func credentials(config *rest.Config) []string {
	if config == nil {
		return nil
	}
	found := []string{config.BearerToken, config.Password, string(config.KeyData)}
	for _, file := range []string{config.BearerTokenFile, config.KeyFile} {
		if file == "" {
			continue
		}
		if data, err := os.ReadFile(file); err == nil {
			found = append(found, string(data))
		}
	}
	return found
}

// valuesAt appends the strings and numbers at and below a path. It follows the path
// in each element of a list on the way. Keys may contain dots.
func valuesAt(found []string, tree any, path []string) []string {
	switch t := tree.(type) {
	case []any:
		for _, v := range t {
			found = valuesAt(found, v, path)
		}
	case map[string]any:
		for n := range path {
			found = valuesAt(found, t[strings.Join(path[:n+1], ".")], path[n+1:])
		}
		if len(path) > 0 {
			return found
		}
		for _, key := range slices.Sorted(maps.Keys(t)) {
			found = valuesAt(found, t[key], nil)
		}
	case nil, bool:
	case float64:
		if len(path) == 0 { // Ansible prints numbers without an exponent, or as Go does
			found = append(found, strconv.FormatFloat(t, 'f', -1, 64), fmt.Sprint(t))
		}
	default:
		if len(path) == 0 {
			found = append(found, fmt.Sprint(t))
		}
	}
	return found
}
