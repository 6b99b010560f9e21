package shard

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"
)

func members(n int) (names []string) {
	for i := range n {
		names = append(names, fmt.Sprintf("operator-5d8f7c9b6-%05d", i*7919))
	}
	return names
}

func TestOf_SpreadsObjectsEvenly(t *testing.T) {
	const n, objects = 8, 8000
	var count [n]int
	for range objects {
		count[Of(types.UID(uuid.NewString()), n)]++
	}
	for i, c := range count {
		if c < 800 || c > 1200 { // more than six standard deviations
			t.Errorf("shard %d has %d of %d objects", i, c, objects)
		}
	}
}

// The API server's selector selects the same objects for a shard as Of does.
func TestSelector(t *testing.T) {
	for _, n := range []int{2, 3, 7, 8, 64} {
		for range 200 {
			uid := uuid.NewString()
			i, hash := Of(types.UID(uid), n), "0x"+sharding.HashField(uid)
			if sharding.HexLess(hash, first(i, n)) || !sharding.HexLess(hash, first(i+1, n)) {
				t.Errorf("%s with the hash %s is of the shard %d of %d, which is from %s to %s", uid, hash, i, n, first(i, n), first(i+1, n))
			}
		}
	}
	// Another range would move objects between replicas of two versions.
	if is := Selector(1, 3); is != "shardRange(object.metadata.uid, '0x5555555555555556', '0xaaaaaaaaaaaaaaab')" {
		t.Errorf("the selector is %s", is)
	}
}

func TestAssign_EachShardHasOneMemberAndEachMemberItsShare(t *testing.T) {
	for _, n := range []int{1, 2, 7, 8, 64} {
		for r := 1; r <= 12; r++ {
			all := members(r)
			of := Assign(n, all)
			load := map[string]int{}
			for i, m := range of {
				if !slices.Contains(all, m) {
					t.Fatalf("%d shards, %d members: shard %d is for %q", n, r, i, m)
				}
				load[m]++
			}
			for _, m := range all {
				if load[m] < n/r || load[m] > (n+r-1)/r {
					t.Errorf("%d shards, %d members: %s has %d", n, r, m, load[m])
				}
			}
			slices.Reverse(all)
			if !slices.Equal(of, Assign(n, append(all, all[0]))) {
				t.Errorf("%d shards, %d members: the order of the members, or one given twice, matters", n, r)
			}
		}
	}
	if of := Assign(3, nil); !slices.Equal(of, make([]string, 3)) {
		t.Errorf("without members: %q", of)
	}
}

// A replica that comes or goes moves its own share, and little else.
func TestAssign_MovesFewShards(t *testing.T) {
	for _, n := range []int{8, 64} {
		for r := 1; r < 8; r++ {
			all := members(r + 1)
			fewer, more := Assign(n, all[:r]), Assign(n, all)
			share, others := 0, 0
			for i := range n {
				switch {
				case fewer[i] == more[i]:
				case more[i] == all[r]:
					share++
				default:
					others++
				}
			}
			if share > (n+r)/(r+1) || others > n/4 {
				t.Errorf("%d shards, from %d to %d members: %d move to the new one, and %d between the others", n, r, r+1, share, others)
			}
		}
	}
}
