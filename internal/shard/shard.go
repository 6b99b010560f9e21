// Package shard says which objects belong to which shard, and which shard is for which replica
// of an operator. It is pure: Leases say which replica holds a shard.
package shard

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/bits"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
)

// Of returns the shard of an object, from 0 to n-1. An object keeps its UID, and so its shard. A
// shard is a range of hashes, which the API server computes in the same way for [Selector]. A change
// of the hash also needs a new name for the identity with which all replicas hold the Lease: replicas
// of the two versions must not run together.
func Of(uid types.UID, n int) int {
	h := fnv.New64a()
	_, _ = h.Write([]byte(uid)) // it cannot fail
	i, _ := bits.Mul64(h.Sum64(), uint64(n))
	return int(i)
}

// Selector returns the value of shardSelector, see [metav1.ListOptions], with which an API server
// lists and watches only the objects of the shard i of n. An API server that does not support it
// returns all objects.
func Selector(i, n int) string {
	return fmt.Sprintf("shardRange(object.metadata.uid, '%s', '%s')", first(i, n), first(i+1, n))
}

// first returns the lowest hash of the shard i of n; for i == n, the first number above all hashes.
func first(i, n int) string {
	if i == n {
		return "0x10000000000000000"
	}
	at, _ := bits.Div64(uint64(i), uint64(n-1), uint64(n)) // i * 2^64 / n, rounded up
	return fmt.Sprintf("0x%016x", at)
}

// Assign returns the member for each of n shards; empty texts if there are no members. It is a
// rendezvous hash with an even load: each pair of shard and member has a score. The pairs are
// taken in the order of their scores, the highest first, until each member has n/len(members)
// shards, and some have one more. So all replicas that know the same members get the same result,
// and few shards move when a member comes or goes.
func Assign(n int, members []string) []string {
	of := make([]string, n)
	members = slices.Compact(slices.Sorted(slices.Values(members)))
	if len(members) == 0 {
		return of
	}
	type pair struct {
		shard  int
		member string
		score  uint64
	}
	pairs := make([]pair, 0, n*len(members))
	for _, m := range members {
		for i := range n {
			pairs = append(pairs, pair{i, m, score(i, m)})
		}
	}
	slices.SortFunc(pairs, func(a, b pair) int {
		return cmp.Or(cmp.Compare(b.score, a.score), cmp.Compare(a.shard, b.shard), cmp.Compare(a.member, b.member))
	})
	least, more := n/len(members), n%len(members)
	load := map[string]int{}
	for _, p := range pairs {
		switch has := load[p.member]; {
		case of[p.shard] != "" || has > least:
			continue
		case has == least && more == 0:
			continue
		case has == least:
			more--
		}
		of[p.shard] = p.member
		load[p.member]++
	}
	return of
}

func score(shard int, member string) uint64 {
	sum := sha256.Sum256([]byte(strconv.Itoa(shard) + "/" + member))
	return binary.BigEndian.Uint64(sum[:])
}
