package webhookserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	jsonpatch "github.com/evanphx/json-patch/v5"
	"github.com/google/uuid"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	hooks "github.com/rolewright/rolewright/internal/admission"
	"github.com/rolewright/rolewright/internal/metrics"
	"github.com/rolewright/rolewright/internal/text"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner/supervise"
)

const (
	// maxAnswer bounds what a command prints, in bytes.
	maxAnswer = 64 << 10
	// maxSaid bounds a message or warning of a command, and how much of its standard error is logged, in bytes.
	maxSaid     = 1 << 10
	maxWarnings = 10
)

// answer is what a command prints: one JSON value.
type answer struct {
	Allowed  *bool           `json:"allowed"`
	Message  string          `json:"message"`
	Warnings []string        `json:"warnings"`
	Patch    json.RawMessage `json:"patch"`
}

// ask runs a command for an answer. Without an answer, the failure policy decides.
func (s *Server) ask(ctx context.Context, h hooks.Hook, req admission.Request) admission.Response {
	// The command is ended before the API server gives up, so that users learn why.
	ctx, cancel := context.WithTimeout(ctx, h.Timeout*4/5)
	defer cancel()
	start := time.Now()
	response, err := s.call(ctx, h, req)
	s.Metrics.Webhook(h.Watch.GVK.GroupKind(), verb(h), resultOf(response, err), time.Since(start))
	if err == nil {
		return response
	}
	s.unanswered.Do(func() {
		s.Log.Error(err, "A webhook has no answer", "kind", h.Watch.GVK.Kind, "namespace", text.Clip(req.Namespace, maxSaid), "name", text.Clip(req.Name, maxSaid), "command", h.Command.Path, "failurePolicy", h.FailurePolicy)
	})
	if h.FailurePolicy == watches.FailurePolicyIgnore {
		return admission.Allowed("").WithWarnings("it was not checked: the webhook " + h.Path + " of the operator has no answer")
	}
	return admission.Errored(http.StatusInternalServerError, err)
}

func verb(h hooks.Hook) string {
	if h.Mutates {
		return "mutate"
	}
	return "validate"
}

func resultOf(response admission.Response, err error) metrics.WebhookResult {
	switch {
	case err != nil:
		return metrics.WebhookFailed
	case response.Allowed:
		return metrics.WebhookAllowed
	}
	return metrics.WebhookRefused
}

func (s *Server) call(ctx context.Context, h hooks.Hook, req admission.Request) (admission.Response, error) {
	if !enter(ctx, s.calls) {
		return admission.Response{}, fmt.Errorf("%d commands of webhooks were in progress all the time: try again", maxCalls)
	}
	defer func() { <-s.calls }()
	input, err := json.Marshal(req.AdmissionRequest)
	if err != nil {
		return admission.Response{}, fmt.Errorf("encode the request: %w", err)
	}
	out, err := s.run(ctx, h, input)
	if err != nil {
		return admission.Response{}, err
	}
	name := filepath.Base(h.Command.Path)
	var a answer
	decoder := json.NewDecoder(bytes.NewReader(out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&a); err != nil {
		return admission.Response{}, fmt.Errorf("%s has not printed an answer such as {\"allowed\": true}: %w", name, err)
	}
	if _, err := decoder.Token(); !errors.Is(err, io.EOF) || a.Allowed == nil {
		return admission.Response{}, fmt.Errorf("%s has not printed one JSON object with the key allowed", name)
	}
	response := admission.ValidationResponse(*a.Allowed, text.Clip(a.Message, maxSaid))
	if len(a.Patch) > 0 && *a.Allowed {
		if response, err = patched(h, req.Object.Raw, a.Patch); err != nil {
			return response, fmt.Errorf("the patch of %s: %w", name, err)
		}
	}
	for _, w := range a.Warnings[:min(len(a.Warnings), maxWarnings)] {
		response = response.WithWarnings(text.Clip(w, maxSaid))
	}
	return response, nil
}

// patched applies a merge patch. The patch may change only what users set: not the status, nor metadata other than labels
// and annotations.
func patched(h hooks.Hook, object, patch []byte) (admission.Response, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(patch, &fields); err != nil {
		return admission.Response{}, fmt.Errorf("it is not an object: %w", err)
	}
	var metadata map[string]json.RawMessage
	if raw, there := fields["metadata"]; there {
		if err := json.Unmarshal(raw, &metadata); err != nil || metadata == nil {
			return admission.Response{}, errors.New("its metadata is not an object")
		}
	}
	for key := range metadata {
		if key != "labels" && key != "annotations" {
			return admission.Response{}, fmt.Errorf("it changes metadata.%s: of the metadata it may change labels and annotations", text.Clip(key, 80))
		}
	}
	for _, key := range []string{"apiVersion", "kind", "status"} {
		if _, there := fields[key]; there {
			return admission.Response{}, fmt.Errorf("it changes %s, which it may not", key)
		}
	}
	if !h.Mutates {
		return admission.Response{}, errors.New("a command of validate changes nothing: write it below mutate")
	}
	after, err := jsonpatch.MergePatch(object, patch)
	if err != nil {
		return admission.Response{}, err
	}
	return admission.PatchResponseFromRaw(object, after), nil
}

// run runs a command in a directory of its own, and returns what it prints.
func (s *Server) run(ctx context.Context, h hooks.Hook, input []byte) ([]byte, error) {
	name, id := filepath.Base(h.Command.Path), uuid.NewString()
	dir := filepath.Join(s.Dir, id)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("directory for %s: %w", name, err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	in := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(in("input.json"), input, 0o600); err != nil {
		return nil, fmt.Errorf("input of %s: %w", name, err)
	}
	exit, err := s.Supervisor.Run(ctx, supervise.Command{
		Path: h.Command.Path, Args: h.Command.Args, Dir: h.Command.Dir, Env: environment(dir), Cookie: "ROLEWRIGHT_WEBHOOK_ID=" + id,
		Input: in("input.json"), Output: in("stdout"), Errors: in("stderr"), Record: in("end.json"), Run: id, Grace: 100 * time.Millisecond,
	})
	if said := read(in("stderr"), maxSaid); len(said) > 0 {
		s.Log.Info("A webhook's command has written to its standard error", "command", h.Command.Path, "text", strings.ToValidUTF8(string(said), "?"))
	}
	switch {
	case ctx.Err() != nil:
		return nil, fmt.Errorf("%s has not answered within %s", name, h.Timeout*4/5)
	case err != nil:
		return nil, fmt.Errorf("run %s: %w", name, err)
	case exit.Code != 0:
		return nil, fmt.Errorf("%s has ended with exit code %d %s", name, exit.Code, exit.Signal)
	}
	out := read(in("stdout"), maxAnswer+1)
	if len(out) > maxAnswer {
		return nil, fmt.Errorf("%s has printed more than %d bytes", name, maxAnswer)
	}
	return out, nil
}

// read returns at most the first most bytes of a file; nil if it cannot be opened.
func read(path string, most int64) []byte {
	f, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer f.Close()
	data, _ := io.ReadAll(io.LimitReader(f, most))
	return data
}

// environment returns the environment of a command, with nothing that leads to credentials.
func environment(dir string) []string {
	env := []string{"HOME=" + dir, "TMPDIR=" + dir, "LANG=C.UTF-8"}
	for _, name := range []string{"PATH", "TZ", "SSL_CERT_FILE", "SSL_CERT_DIR"} {
		if value, set := os.LookupEnv(name); set {
			env = append(env, name+"="+value)
		}
	}
	return env
}
