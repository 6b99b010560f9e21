package dependent

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/metadata"

	"github.com/rolewright/rolewright/internal/discovery"
)

// Options are the options of a [Registry]. Client, Content and Lookup are required.
type Options struct {
	// Client lists and watches metadata.
	Client metadata.Interface
	// Content reads versions of single objects if the metadata says too little.
	Content dynamic.Interface
	// Lookup returns the kind of a resource and its scope. If the version is not served,
	// the result has another one. It may block, and is called again after an error;
	// discovery.ErrNotFound says that there is no such resource.
	Lookup func(ctx context.Context, r schema.GroupVersionResource) (discovery.Resource, error)
	// Namespaces restricts the namespaces in which objects are watched; empty means
	// all.
	Namespaces []string
	// Log is the logger; the zero value logs nothing.
	Log logr.Logger
	// Idle is how long a watch is kept, at least, after the last owned object is
	// gone; 0 means a minute.
	Idle time.Duration
}

// Registry holds the watches for all owner kinds. Its methods are safe for
// concurrent use.
type Registry struct {
	opts Options
	// denied is the pause between attempts if the API server does not allow or
	// does not know what is asked for.
	denied time.Duration
	// readers is how many comparisons are made at the same time.
	readers   int
	questions chan question

	// mu guards the following fields, and the state of kinds, runs and feeds.
	// While it is held, no request is made and no callback called.
	mu    sync.Mutex
	feeds map[schema.GroupResource]*feed
	// recorded has the resources from [Kind.Restore] with their owners, until they
	// are looked up. restoring has a token while there is something new.
	recorded  map[schema.GroupVersionResource]map[ownerKey]struct{}
	restoring chan struct{}
	// start begins a feed; nil before Start and after its end.
	start func(*feed)
}

const (
	defaultIdle   = time.Minute
	defaultDenied = time.Minute
	// Comparisons are rare. When they are not, more readers would burden the API server.
	defaultReaders = 4
)

// New returns a Registry that watches nothing before Start.
func New(o Options) *Registry {
	o.Idle = cmp.Or(o.Idle, defaultIdle)
	return &Registry{
		opts: o, denied: defaultDenied, readers: defaultReaders,
		questions: make(chan question, maxQuestions),
		feeds:     map[schema.GroupResource]*feed{},
		recorded:  map[schema.GroupVersionResource]map[ownerKey]struct{}{},
		restoring: make(chan struct{}, 1),
	}
}

// Start begins the watches that were asked for, and all later ones. It returns
// when ctx and everything that it started have ended. It must be called only
// once; the error is always nil.
func (r *Registry) Start(ctx context.Context) error {
	var wg sync.WaitGroup
	r.mu.Lock()
	r.start = func(f *feed) { wg.Go(func() { f.run(ctx) }) }
	for _, f := range r.feeds {
		r.start(f)
	}
	r.mu.Unlock()
	wg.Go(func() { r.restore(ctx) })
	for range r.readers {
		wg.Go(func() { r.answer(ctx) })
	}
	<-ctx.Done()
	r.mu.Lock()
	r.start = nil
	r.mu.Unlock()
	wg.Wait()
	return nil
}

// Watching returns, sorted, the resources whose watches work: the owned objects
// have been listed, and changes are seen.
func (r *Registry) Watching() []schema.GroupVersionResource {
	r.mu.Lock()
	defer r.mu.Unlock()
	var working []schema.GroupVersionResource
	for _, f := range r.feeds {
		if f.complete() {
			working = append(working, f.resource)
		}
	}
	return sorted(working)
}

// Subscribe adds a kind of owners. It does not begin a watch yet.
func (r *Registry) Subscribe(spec OwnerKind) *Kind {
	return &Kind{registry: r, spec: spec, owners: map[types.NamespacedName]*owner{}}
}

// feedOf returns the feed of a resource, and creates it if necessary. The caller
// must hold the lock.
//
// A resource is watched only once, in the version that was asked for first, since
// the objects are the same in all versions. A feed that does not work yet takes
// the version that was asked for last. If a version is not served any more, the
// feed goes on with another one: see [stream.gone].
func (r *Registry) feedOf(resource schema.GroupVersionResource) *feed {
	f := r.feeds[resource.GroupResource()]
	if f == nil {
		f = newFeed(r, resource)
		r.feeds[resource.GroupResource()] = f
		if r.start != nil {
			r.start(f)
		}
	}
	if !f.complete() {
		f.resource = resource
	}
	return f
}

// notice is a call of tell, or of [OwnerKind.Changed] if tell is nil, to be made once the lock is released.
type notice struct {
	tell           func()
	kind           *Kind
	owner          types.NamespacedName
	uid            types.UID
	why            string
	otherNamespace bool
}

func (n notice) deliver() {
	if n.tell != nil {
		n.tell()
		return
	}
	n.kind.spec.Changed(n.owner, n.uid, n.why, n.otherNamespace)
}

func deliver(notices []notice) {
	for _, n := range notices {
		n.deliver()
	}
}

func sorted(resources []schema.GroupVersionResource) []schema.GroupVersionResource {
	slices.SortFunc(resources, compareResources)
	return resources
}
