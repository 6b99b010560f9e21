package e2e

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// scaleCommand waits if the object has changed, as a role does for the API server, and uses almost no CPU.
const scaleCommand = `#!/bin/sh
echo "end $ROLEWRIGHT_UID $ROLEWRIGHT_OBJECT $(date +%s%N)" >> "$LEDGER"
if grep -q '"to"' "$ROLEWRIGHT_OBJECT"; then sleep 5; fi
`

// TestScale prints how long replicas that share objects take, for make simulate-scale: SCALE is the number of objects of
// each of two kinds. The test checks that each change has run its object once; how long it took is only printed.
func TestScale(t *testing.T) {
	n, _ := strconv.Atoi(os.Getenv("SCALE"))
	if n <= 0 {
		t.Skip("make simulate-scale runs it")
	}
	fmt.Println("| replicas | seconds for all runs | runs per second | requests per run | memory of a replica, MiB | seconds to take over |")
	fmt.Println("|---|---|---|---|---|---|")
	for _, replicas := range []int{1, 2, 4} {
		t.Run(strconv.Itoa(replicas), func(t *testing.T) { simulateScale(t, replicas, n) })
	}
}

func simulateScale(t *testing.T, replicas, n int) {
	t.Helper()
	h := newSharing(t, 2, "--max-concurrent-runs=4", "--ansible-log-events=Nothing")
	h.script("shared.sh", scaleCommand)
	for i := range n {
		h.names = append(h.names, fmt.Sprintf("it-%d", i))
	}
	var all []*operator
	for range replicas {
		all = append(all, h.another())
	}
	h.awaitShares(all...)
	h.each(func(k kind, name string) { k.create(name, map[string]any{"beats": int64(1)}) })
	h.awaitReady()

	sum := func(metric string) (total float64) {
		for _, o := range all {
			total += must.Get(o.metric(t.Context(), metric))(t)
		}
		return total
	}
	before, began := sum("rest_client_requests_total"), time.Now()
	var patching sync.WaitGroup
	for _, k := range h.kinds {
		patching.Go(func() {
			for _, name := range h.names {
				k.patch(name, `{"spec":{"to":1}}`)
			}
		})
	}
	patching.Wait()
	h.awaitReady()
	took := time.Since(began)
	h.expectRuns("changed", 2)
	runs := float64(len(h.kinds) * n)
	requests, memory := sum("rest_client_requests_total")-before, sum("process_resident_memory_bytes")/float64(replicas)

	over := "-"
	if replicas > 1 {
		all[0].signal(syscall.SIGKILL)
		killed := time.Now()
		all[0].exit()
		all = all[1:]
		testenv.Eventually(t, "the shards taken over", func(ctx context.Context) error {
			held := 0.0
			for _, o := range all {
				is, err := o.metric(ctx, "rolewright_shards_held")
				if err != nil {
					return err
				}
				held += is
			}
			if held < shardsOfTest {
				return fmt.Errorf("%v are held", held)
			}
			return nil
		})
		over = strconv.FormatFloat(time.Since(killed).Seconds(), 'f', 1, 64)
	}
	h.expectRuns("taken over", 2)
	fmt.Println(strings.Join([]string{
		"", strconv.Itoa(replicas), strconv.FormatFloat(took.Seconds(), 'f', 1, 64), strconv.FormatFloat(runs/took.Seconds(), 'f', 1, 64),
		strconv.FormatFloat(requests/runs, 'f', 1, 64), strconv.FormatFloat(memory/(1<<20), 'f', 0, 64), over, "",
	}, " | "))
}
