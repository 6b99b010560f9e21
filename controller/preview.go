package controller

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rolewright/rolewright/internal/vault"
	"github.com/rolewright/rolewright/internal/watches"
	"github.com/rolewright/rolewright/runner"
)

// Preview is what a run of an object would get, with secret values masked.
type Preview struct {
	runner.Preview
	// Warnings are things that the author of the object should know.
	Warnings []string
}

// NewPreview returns what a run of the watch for obj would get. With deleting, that is the
// finalizer run, for which the watch needs a finalizer. NewPreview does not contact a cluster;
// of opts it uses what applies to every run. It does not change obj.
func NewPreview(ctx context.Context, w watches.Watch, opts Options, obj *unstructured.Unstructured, deleting bool) (Preview, error) {
	r := &reconciler{watch: w, gvk: w.GVK, opts: &opts, now: time.Now}
	if deleting && w.Finalizer == nil {
		return Preview{}, fmt.Errorf("the watch of %s has no finalizer: nothing runs for an object that is deleted", w.GVK)
	}
	s := &scope{key: client.ObjectKeyFromObject(obj), log: logr.Discard(), object: obj.DeepCopy(), runID: runner.PreviewID, deleting: deleting, memory: &memory{}}
	s.content = newContentVersion(w, &opts, nil, vault.New(opts.AnsibleArgs, os.LookupEnv))
	s.settings, s.warnings = r.settingsOf(obj)
	s.plan.check = s.settings.mode == watches.ModeCheck && !deleting
	s.mask = r.newMasker(ctx, s)
	switch {
	case len(w.VarsFrom) == 0:
	case w.Content.Command != nil:
		s.warn("the files of secrets are missing here: they are in the cluster")
	default:
		s.warn("the variables of varsFrom are missing here: they are in the cluster")
	}
	req, err := r.buildRequest(s, nil, nil)
	if err != nil {
		return Preview{}, err
	}
	req.ID = s.runID
	addRunEnv(&req, runner.PreviewDir)
	shown, err := runner.NewPreview(req, os.Environ())
	if err != nil {
		return Preview{}, err
	}
	for i, warning := range s.warnings {
		s.warnings[i] = s.mask.Mask(warning)
	}
	return Preview{Preview: shown, Warnings: s.warnings}, nil
}
