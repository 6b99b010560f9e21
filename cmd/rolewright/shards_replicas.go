package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcoordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
)

// replicaName returns a new name for this replica in Leases: its host and a random part.
func replicaName() (string, error) {
	host, err := os.Hostname()
	if err != nil {
		return "", fmt.Errorf("name of this replica: %w", err)
	}
	return host + "_" + uuid.NewString(), nil
}

// layoutHolder returns the holder of the leader's Lease that stands for all replicas that share
// the objects in n shards. So no replica with another number of shards, or without shards, runs
// beside them. Before shards were ranges of hashes, the holder was N-shards.
func layoutHolder(n int) string { return strconv.Itoa(n) + "-ranges" }

func shardPrefix(id string) string { return id + "-shard-" }

func shardLease(id string, i int) string { return shardPrefix(id) + strconv.Itoa(i) }

// podOf returns the Pod of a replica, given its name in Leases.
func podOf(replica string) string {
	pod, _, _ := strings.Cut(replica, "_")
	return pod
}

// replicaLease returns the name of the Lease that shows that a replica is alive.
func replicaLease(id, replica string) string {
	sum := sha256.Sum256([]byte(replica))
	return id + "-replica-" + hex.EncodeToString(sum[:8])
}

// replicas are the replicas that share the objects. Each has a Lease that shows that it is
// alive; as in leader election, an observer's own clock alone decides when that Lease has expired.
// What the replicas agree on decides who asks for a shard, not who has it.
type replicas struct {
	client clientcoordinationv1.LeaseInterface
	id, me string
	length time.Duration
	now    func() time.Time
	began  time.Time        // the first meeting
	seen   map[string]sight // by the Lease's name
	shards map[string]held  // by the Lease's name

	mu sync.Mutex
	// ends is when the holder of a shard's Lease loses it, by the version of the Lease; for the current versions only.
	ends map[string]time.Time
}

// sight is what was seen of a Lease: its version and since when it has had it. first is when the Lease was first seen;
// zero if this replica had itself only just started.
type sight struct {
	version      string
	since, first time.Time
}

// held says who holds a shard, and the version of its Lease.
type held struct{ by, version string }

// settles is how long a replica must be seen to renew its Lease before others give shards up for it. Otherwise a
// replica that crashes at each start, with a new name each time, would move shards to and fro.
const settles = 15 * time.Second

func (s sight) settled() bool { return s.since.Sub(s.first) >= settles }

// deadAfter is after how many times its length the Lease of a replica is removed.
const deadAfter = 20

func newReplicas(client clientcoordinationv1.LeaseInterface, id, me string, length time.Duration) *replicas {
	return &replicas{client: client, id: id, me: me, length: length, now: time.Now, seen: map[string]sight{}}
}

// meet shows that this replica is alive. It returns the replicas that are, and those of them that have been for a while.
func (r *replicas) meet(ctx context.Context) (live, settled []string, err error) {
	all, err := r.client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, nil, fmt.Errorf("list the Leases: %w", err)
	}
	own, found := replicaLease(r.id, r.me), (*coordinationv1.Lease)(nil)
	now, seen, ends := r.now(), map[string]sight{}, map[string]time.Time{}
	if r.began.IsZero() {
		r.began = now
	}
	r.shards = map[string]held{}
	for i := range all.Items {
		is := &all.Items[i]
		if is.Name == own {
			found = is
			continue
		}
		if is.Spec.HolderIdentity == nil || !yieldIdentity.MatchString(*is.Spec.HolderIdentity) {
			continue
		}
		if is.Name != replicaLease(r.id, *is.Spec.HolderIdentity) {
			if strings.HasPrefix(is.Name, shardPrefix(r.id)) {
				r.shards[is.Name], ends[is.ResourceVersion] = held{*is.Spec.HolderIdentity, is.ResourceVersion}, r.endOf(is, now)
			}
			continue
		}
		s := r.see(is, now)
		seen[is.Name] = s
		switch age := now.Sub(s.since); {
		case age < r.length:
			live = append(live, *is.Spec.HolderIdentity)
			if s.settled() {
				settled = append(settled, *is.Spec.HolderIdentity)
			}
		case age > deadAfter*r.length:
			// If it cannot be removed, it is still ignored, and must not keep this replica from renewing its own Lease.
			_ = r.client.Delete(ctx, is.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &is.UID, ResourceVersion: &is.ResourceVersion}})
		}
	}
	r.seen = seen
	r.mu.Lock()
	r.ends = ends
	r.mu.Unlock()
	return append(live, r.me), append(settled, r.me), r.renew(ctx, own, found)
}

func (r *replicas) see(is *coordinationv1.Lease, now time.Time) sight {
	s, known := r.seen[is.Name]
	if !known && now.Sub(r.began) >= settles {
		s.first = now
	}
	if s.version != is.ResourceVersion {
		s.version, s.since = is.ResourceVersion, now
	}
	return s
}

// endOf returns when the holder of a shard's Lease loses it unless it renews it. The Lease states the duration, which may
// differ while --leader-elect-lease-duration is being changed; this replica's own duration is the minimum.
func (r *replicas) endOf(is *coordinationv1.Lease, now time.Time) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	if at, seen := r.ends[is.ResourceVersion]; seen {
		return at
	}
	length := r.length
	if says := is.Spec.LeaseDurationSeconds; says != nil {
		length = max(length, time.Duration(*says)*time.Second)
	}
	return now.Add(length)
}

// expired tells whether a version of a shard's Lease has been there for so long that its
// holder has lost it. An elector only counts from when it starts to look, which is when a
// replica is taken for dead: it would wait for the same time again.
func (r *replicas) expired(version string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	at, seen := r.ends[version]
	return seen && r.now().After(at)
}

// free reports whether no other replica held the shard i at the last meeting.
func (r *replicas) free(i int) bool {
	is, found := r.shards[shardLease(r.id, i)]
	return !found || is.by == r.me || r.expired(is.version)
}

// holders returns the Pods that held the n shards at the last meeting.
func (r *replicas) holders(n int) []string {
	of := make([]string, n)
	for i := range of {
		of[i] = podOf(r.shards[shardLease(r.id, i)].by)
	}
	return of
}

// renew shows that this replica is alive: it updates its Lease, or creates it.
func (r *replicas) renew(ctx context.Context, name string, is *coordinationv1.Lease) (err error) {
	now, length := metav1.NowMicro(), int32(r.length/time.Second)
	spec := coordinationv1.LeaseSpec{HolderIdentity: &r.me, LeaseDurationSeconds: &length, AcquireTime: &now, RenewTime: &now}
	if is == nil {
		_, err = r.client.Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, metav1.CreateOptions{})
	} else {
		spec.AcquireTime = is.Spec.AcquireTime
		is.Spec = spec
		_, err = r.client.Update(ctx, is, metav1.UpdateOptions{})
	}
	if err != nil {
		return fmt.Errorf("renew the Lease of this replica: %w", err)
	}
	return nil
}

// leave shows that this replica takes no shards any more.
func (r *replicas) leave(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.length)
	defer cancel()
	err := r.client.Delete(ctx, replicaLease(r.id, r.me), metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
