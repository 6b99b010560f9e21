// Package scenario reads and plays the scenarios of rolewright test: objects that
// are applied, and what is then expected of the runs and of the cluster.
package scenario

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/rolewright/rolewright/internal/text"
)

// Scenario is a file with steps. It is played in a separate namespace.
type Scenario struct {
	// Path is the path of the file.
	Path string `json:"-"`
	// Given are objects that exist before the first step, with their status if they
	// have one.
	Given Objects `json:"given,omitempty"`
	Steps []Step  `json:"steps"`
}

// Step applies or deletes objects, and says what is expected then. Objects without
// a namespace are in the scenario's namespace.
type Step struct {
	Name string `json:"name,omitempty"`
	// Apply are objects to apply. The runs of those that are watched have to succeed.
	Apply Objects `json:"apply,omitempty"`
	// Delete are objects to delete. They have to be gone at the end.
	Delete Objects `json:"delete,omitempty"`

	// Status are objects whose status the step sets as soon as they exist, in place of
	// controllers that do not run: for example, of a Deployment that has become
	// available.
	Status Objects `json:"status,omitempty"`

	// Fails is the reason with which the run has to fail, such as TaskFailed. Message is
	// a text that the run's message has to contain.
	Fails   string `json:"fails,omitempty"`
	Message string `json:"message,omitempty"`
	// Changed is how many tasks of the run have to change something.
	Changed *int64 `json:"changed,omitempty"`
	// Idempotent is false if a second run may change something.
	Idempotent *bool `json:"idempotent,omitempty"`

	// Expect are objects as they have to become. Fields that are not named may have any
	// value, and a list of objects may have further elements.
	Expect Objects `json:"expect,omitempty"`
	// Absent are objects that must not exist, or no longer exist.
	Absent Objects `json:"absent,omitempty"`
	// Timeout is how long the step may take.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// Objects are written as an object, as the path of a file with objects (relative to
// the scenario), or as a list of both.
type Objects struct {
	All   []*unstructured.Unstructured
	paths []string
}

// UnmarshalJSON reads any of these forms.
func (o *Objects) UnmarshalJSON(data []byte) error {
	var list []json.RawMessage
	if data = bytes.TrimSpace(data); len(data) > 0 && data[0] != '[' {
		list = []json.RawMessage{data}
	} else if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	for _, one := range list {
		var path string
		if json.Unmarshal(one, &path) == nil {
			if path == "" {
				return errors.New("a path or an object expected, found nothing")
			}
			o.paths = append(o.paths, path)
			continue
		}
		u := &unstructured.Unstructured{}
		if err := json.Unmarshal(one, &u.Object); err != nil {
			return errors.New("a path or an object expected")
		}
		o.All = append(o.All, u)
	}
	return nil
}

// Read reads a scenario and the files that it names. The error names the file
// and the step, or the line and the key.
func Read(path string) (Scenario, error) {
	s := Scenario{Path: path}
	data, err := os.ReadFile(path)
	if err != nil {
		return s, err
	}
	if err := yaml.UnmarshalStrict(data, &s); err != nil {
		return s, explain(path, data, err)
	}
	if len(s.Steps) == 0 {
		return s, fmt.Errorf("%s: it has no steps; write at least one, with apply", path)
	}
	if err := s.Given.resolve(path); err != nil {
		return s, fmt.Errorf("%s: given: %w", path, err)
	}
	for i := range s.Steps {
		if err := s.Steps[i].complete(path); err != nil {
			return s, fmt.Errorf("%s: step %d: %w", path, i+1, err)
		}
	}
	return s, nil
}

// OfSample returns the scenario for a file with objects: they are applied, their runs
// succeed, a second run changes nothing, and they can be deleted.
func OfSample(path string) (Scenario, error) {
	sample := Objects{paths: []string{filepath.Base(path)}}
	if err := sample.resolve(path); err != nil {
		return Scenario{}, fmt.Errorf("%s: %w", path, err)
	}
	return Scenario{Path: path, Steps: []Step{{Name: "apply", Apply: sample}, {Name: "delete", Delete: sample}}}, nil
}

func (s *Step) complete(path string) error {
	var errs []error
	for name, objects := range map[string]*Objects{"apply": &s.Apply, "delete": &s.Delete, "expect": &s.Expect, "absent": &s.Absent, "status": &s.Status} {
		if err := objects.resolve(path); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	if len(s.Apply.All) == 0 && (s.Fails != "" || s.Changed != nil) {
		errs = append(errs, errors.New("fails and changed are about the runs of apply, which is missing"))
	}
	for _, u := range s.Status.All {
		if !hasStatus(u) {
			errs = append(errs, fmt.Errorf("status: %s has no field status: write the one that it is to get", name(u)))
		}
	}
	if s.Message != "" && s.Fails == "" {
		errs = append(errs, errors.New("message is about a run that fails: give fails too"))
	}
	if s.Timeout != nil && s.Timeout.Duration <= 0 {
		errs = append(errs, fmt.Errorf("timeout %s: more than 0 expected, such as 2m", s.Timeout.Duration.Round(time.Millisecond)))
	}
	s.Name = cmp.Or(s.Name, strings.Join(append(s.Apply.names(), s.Delete.names()...), ", "))
	return errors.Join(errs...)
}

func (o *Objects) names() []string {
	var names []string
	for _, u := range o.All {
		names = append(names, u.GetKind()+"/"+u.GetName())
	}
	return names
}

func hasStatus(u *unstructured.Unstructured) bool {
	status, ok := u.Object["status"].(map[string]any)
	return ok && len(status) > 0
}

// resolve reads the files, and checks that each object has a kind and a name.
func (o *Objects) resolve(scenario string) error {
	for _, p := range o.paths {
		if !filepath.IsAbs(p) {
			p = filepath.Join(filepath.Dir(scenario), p)
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		found, err := Decode(f)
		_ = f.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		o.All = append(o.All, found...)
	}
	o.paths = nil
	for _, u := range o.All {
		if u.GetAPIVersion() == "" || u.GetKind() == "" || u.GetName() == "" {
			return fmt.Errorf("an object has no apiVersion, kind or metadata.name: %s", head(u))
		}
	}
	return nil
}

// Decode reads the objects of a file. It leaves out documents that no API server
// accepts: empty ones and kustomizations.
func Decode(r io.Reader) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	for documents := utilyaml.NewYAMLOrJSONDecoder(r, 4096); ; {
		var document any
		if err := documents.Decode(&document); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		object, ok := document.(map[string]any)
		if !ok && document != nil {
			return nil, errors.New("an object with apiVersion, kind and metadata.name is expected")
		}
		u := &unstructured.Unstructured{Object: object}
		if len(u.Object) > 0 && !strings.HasPrefix(u.GetAPIVersion(), "kustomize.config.k8s.io/") {
			all = append(all, u)
		}
	}
}

// head returns the beginning of an object's JSON, for messages.
func head(u *unstructured.Unstructured) string {
	const most = 80
	data, err := json.Marshal(u.Object)
	if err != nil {
		return "?"
	}
	return text.Clip(string(data), most)
}
