package dependent

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxQuestions is how many comparisons may wait. Further updates count as changed
	// without a comparison: among so many, some are changes anyway.
	maxQuestions = 1024
	// readTimeout limits the read of one version of one object.
	readTimeout = 10 * time.Second
)

// question asks what happened to an object between two versions. It has the notices
// for the owners, to be delivered if the change counts.
type question struct {
	resource schema.GroupVersionResource
	id       types.NamespacedName
	uid      types.UID
	was, is  string
	notices  []notice
}

// ask queues a question. If the queue is full, it returns the question's notices, to
// be delivered at once. The caller must hold the lock.
func (r *Registry) ask(q question) []notice {
	if len(q.notices) == 0 {
		return nil
	}
	select {
	case r.questions <- q:
		return nil
	default:
		return q.notices
	}
}

// answer answers questions until ctx ends.
func (r *Registry) answer(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-r.questions:
			v, err := r.compare(ctx, q)
			if ctx.Err() != nil {
				return
			}
			if err != nil {
				r.opts.Log.V(1).Info("Versions of a dependent cannot be compared; the change counts",
					"resource", q.resource.String(), "namespace", q.id.Namespace, "name", q.id.Name, "error", err.Error())
				v = changed
			}
			for _, n := range q.notices {
				if n.kind.counts(v) {
					n.deliver()
				}
			}
		}
	}
}

// compare reads both versions and judges the change. The error says that a version could not be read.
func (r *Registry) compare(ctx context.Context, q question) (verdict, error) {
	was, err := r.read(ctx, q, q.was)
	if err != nil {
		return changed, err
	}
	is, err := r.read(ctx, q, q.is)
	if err != nil {
		return changed, err
	}
	if v := judge(factsOf(was), factsOf(is)); v != unclear {
		return v, nil
	}
	return judgeContent(was, is), nil
}

// judgeContent judges a change by the content, if the metadata is not enough. It
// modifies both objects.
func judgeContent(was, is *unstructured.Unstructured) verdict {
	statusWas, statusIs := was.Object["status"], is.Object["status"]
	for _, o := range []*unstructured.Unstructured{was, is} {
		delete(o.Object, "status")
		delete(o.Object, "metadata")
	}
	switch {
	case !equality.Semantic.DeepEqual(was.Object, is.Object):
		return changed
	case !equality.Semantic.DeepEqual(statusWas, statusIs):
		return statusWrite
	default:
		return bookkeeping
	}
}

// read returns the object at a version. It uses a LIST, since a GET returns only the
// current version; old versions can be listed until etcd compacts them.
func (r *Registry) read(ctx context.Context, q question, version string) (*unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list, err := r.opts.Content.Resource(q.resource).Namespace(q.id.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector:        fields.OneTermEqualSelector(metav1.ObjectNameField, q.id.Name).String(),
		ResourceVersion:      version,
		ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	if err != nil {
		return nil, fmt.Errorf("read version %s: %w", version, err)
	}
	for i := range list.Items {
		if o := &list.Items[i]; o.GetUID() == q.uid && o.GetResourceVersion() == version {
			return o, nil
		}
	}
	return nil, fmt.Errorf("read version %s: it is not there", version)
}
