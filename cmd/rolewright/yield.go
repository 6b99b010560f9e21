package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// The annotations with which "rolewright dev" asks the holder of a Lease to leave it:
// to whom, and until when. See docs/quickstart.md.
const (
	yieldTo    = "rolewright.dev/yield-to"
	yieldUntil = "rolewright.dev/yield-until"
)

const (
	// yieldLength is how long one request of dev is valid. dev repeats it with each
	// renewal of the Lease, so that the request of a killed dev expires by itself.
	yieldLength = 30 * time.Second
	// maxYield limits how far in the future the end may be: someone who may annotate the
	// Lease cannot stop the operator for longer at a time.
	maxYield = 10 * time.Minute
)

// yield says to whom a Lease is left, and until when. The zero value means to no one.
type yield struct {
	to    string
	until time.Time
}

// live tells whether the Lease is left to a client at a moment.
func (y yield) live(now time.Time) bool { return y.to != "" && now.Before(y.until) }

// yieldIdentity is what a holder's name may look like, because it is logged.
var yieldIdentity = regexp.MustCompile(`^[!-~]{1,253}$`)

// readYield reads the yield from a Lease's annotations. Anyone who may write the Lease
// may have written them.
func readYield(annotations map[string]string, now time.Time) (yield, error) {
	to, end := annotations[yieldTo], annotations[yieldUntil]
	if to == "" && end == "" {
		return yield{}, nil
	}
	if !yieldIdentity.MatchString(to) {
		return yield{}, fmt.Errorf("%s is not a name of a holder: up to 253 visible characters", yieldTo)
	}
	if len(end) > len(time.RFC3339Nano) {
		return yield{}, fmt.Errorf("%s is not a time: write it as %s", yieldUntil, time.RFC3339)
	}
	until, err := time.Parse(time.RFC3339, end)
	if err != nil {
		return yield{}, fmt.Errorf("%s is not a time: write it as %s", yieldUntil, time.RFC3339)
	}
	if until.After(now.Add(maxYield)) {
		return yield{}, fmt.Errorf("%s is more than %s in the future", yieldUntil, maxYield)
	}
	return yield{to: to, until: until}, nil
}

// annotate writes y into a Lease. The zero value removes the annotations.
func (y yield) annotate(l *coordinationv1.Lease) {
	if y.to == "" {
		delete(l.Annotations, yieldTo)
		delete(l.Annotations, yieldUntil)
		return
	}
	if l.Annotations == nil {
		l.Annotations = map[string]string{}
	}
	maps.Copy(l.Annotations, map[string]string{yieldTo: y.to, yieldUntil: y.until.UTC().Format(time.RFC3339)})
}

// yields is what an operator knows of the yield of its Lease. It belongs to a
// [lease], whose lock guards it.
type yields struct {
	log logr.Logger
	is  yield
	// refused are annotations that were refused; they stay refused even once they would be valid.
	refused [2]string
	// left is to whom the Lease is left according to the log; empty for no one.
	left string
	// leave ends the leadership; nil while there is none to end.
	leave func()
}

// see takes note of the annotations of a Lease.
func (y *yields) see(l *coordinationv1.Lease, now time.Time) {
	written := [2]string{l.Annotations[yieldTo], l.Annotations[yieldUntil]}
	if written == y.refused && written != [2]string{} {
		return
	}
	is, err := readYield(l.Annotations, now)
	y.is, y.refused = is, [2]string{}
	if err != nil {
		y.refused = written
		y.log.Error(err, "The annotations that ask for the Lease are ignored", "lease", l.Namespace+"/"+l.Name)
	}
}

// to returns the client to which the Lease is left at a moment; empty if there is none, or it is me.
func (y *yields) to(me string, now time.Time) string {
	to := ""
	if y.is.live(now) && y.is.to != me {
		to = y.is.to
	}
	switch {
	case to != "" && to != y.left:
		y.log.Info("The Lease is left to another client: no run starts here until it gives the Lease back", "to", to, "until", y.is.until)
	case to == "" && y.left != "":
		y.log.Info("The Lease is not left to another client any more: this operator may lead again", "to", y.left)
	}
	y.left = to
	return to
}

// seen wraps a client for Leases so that a lease sees each Lease that is read, since resourcelock
// does not pass on annotations. change is called for a Lease before it is written.
type seen struct {
	clientcoordinationv1.LeasesGetter
	change, see func(*coordinationv1.Lease)
}

// Leases implements [clientcoordinationv1.LeasesGetter].
func (s seen) Leases(namespace string) clientcoordinationv1.LeaseInterface {
	return seenIn{s.LeasesGetter.Leases(namespace), s}
}

type seenIn struct {
	clientcoordinationv1.LeaseInterface
	seen
}

// Get implements [clientcoordinationv1.LeaseInterface].
func (s seenIn) Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error) {
	l, err := s.LeaseInterface.Get(ctx, name, opts)
	if err == nil {
		s.see(l)
	}
	return l, err
}

// Update implements [clientcoordinationv1.LeaseInterface].
func (s seenIn) Update(ctx context.Context, l *coordinationv1.Lease, opts metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	s.change(l)
	return s.LeaseInterface.Update(ctx, l, opts)
}

// errYielded is why an operator that was asked to stop leading does so.
var errYielded = errors.New("the Lease is left to another client")
