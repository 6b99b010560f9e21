package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

const (
	memoryNamespace = "bench-memory"
	readers         = 8   // runs that list at the same time
	pageSize        = 500 // kubectl's page size
	writers         = connections
	// defaultSettling is longer than two minutes, after which Go collects
	// garbage even if nothing is allocated.
	defaultSettling = 150 * time.Second
	// resting is the settling time after work that leaves little garbage.
	resting = 10 * time.Second
)

// memory measures the operator's memory while roles read, and while it watches
// their dependents.
func (b *bench) memory(ctx context.Context) error {
	if err := b.startLending(ctx, memoryNamespace, readers); err != nil {
		return err
	}
	took, err := b.fill(ctx)
	if err != nil {
		return err
	}
	title := fmt.Sprintf("memory of the operator, %d ConfigMaps, MiB", b.opts.configMaps)
	fmt.Printf("\n%-58s %10s %10s   created in %.0f s\n", title, "peak", "settled", took.Seconds())
	if err := b.memoryOf(ctx, "no run", resting, func() (string, error) { return "", nil }); err != nil {
		return err
	}
	var runs []*access
	err = b.memoryOf(ctx, fmt.Sprintf("%d runs in progress that do nothing", readers), resting, func() (string, error) {
		for i := range readers {
			run, err := b.borrow(ctx, memoryNamespace, fmt.Sprintf("reader-%d", i))
			if err != nil {
				return "", err
			}
			runs = append(runs, run)
		}
		return "", nil
	})
	if err != nil {
		return err
	}
	if err := b.reading(ctx, runs); err != nil {
		return err
	}
	return b.watching(ctx, runs)
}

// memoryOf prints the operator's peak memory during do, and its memory after it
// has had time to settle.
func (b *bench) memoryOf(ctx context.Context, name string, settling time.Duration, do func() (string, error)) error {
	if err := b.operator.resetPeak(); err != nil {
		return err
	}
	note, err := do()
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(settling):
	}
	u, err := b.operator.usage()
	if err != nil {
		return err
	}
	fmt.Printf("%-58s %10.1f %10.1f   %s\n", name, u.peakMiB, u.residentMiB, note)
	return nil
}

// fill creates the ConfigMaps without an owner, and returns how long it took.
func (b *bench) fill(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := b.write(ctx, b.opts.configMaps, func(i int) call {
		return call{http.MethodPost, configMaps(memoryNamespace), "application/json", configMap(fmt.Sprintf("nobodys-%d", i), i)}
	})
	return time.Since(began), err
}

// write makes n requests directly, many at a time.
func (b *bench) write(ctx context.Context, n int, request func(i int) call) error {
	direct, err := newEnd("direct", b.config, false)
	if err != nil {
		return err
	}
	return together(writers, func(writer int) error {
		for i := writer; i < n; i += writers {
			if _, err := direct.do(ctx, request(i)); err != nil {
				return err
			}
		}
		return nil
	})
}

// together calls do n times at once.
func together(n int, do func(i int) error) error {
	failures := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { failures[i] = do(i) })
	}
	wg.Wait()
	return errors.Join(failures...)
}

// reading measures while every run lists all ConfigMaps: by pages for a while,
// and then once without pages.
func (b *bench) reading(ctx context.Context, runs []*access) error {
	err := b.memoryOf(ctx, fmt.Sprintf("each lists them by pages of %d, for %s", pageSize, b.opts.listing), b.opts.settling, func() (string, error) {
		until := time.Now().Add(b.opts.listing)
		return listTogether(ctx, runs, pageSize, func() bool { return time.Now().After(until) })
	})
	if err != nil {
		return err
	}
	return b.memoryOf(ctx, "each lists them once without pages, all at once", b.opts.settling, func() (string, error) {
		return listTogether(ctx, runs, 0, func() bool { return true })
	})
}

// listTogether lists with the access of all runs at once, repeatedly until enough
// returns true. It returns how much was listed.
func listTogether(ctx context.Context, runs []*access, limit int, enough func() bool) (string, error) {
	var mu sync.Mutex
	var lists int
	var all listed
	err := together(len(runs), func(i int) error {
		through, err := newEnd("proxied", runs[i].config, false)
		if err != nil {
			return err
		}
		for {
			l, err := through.list(ctx, configMaps(memoryNamespace), limit)
			if err != nil {
				return err
			}
			mu.Lock()
			lists, all.requests, all.bytes = lists+1, all.requests+l.requests, all.bytes+l.bytes
			mu.Unlock()
			if enough() {
				return nil
			}
		}
	})
	return fmt.Sprintf("%d lists, %d requests, %d MiB", lists, all.requests, all.bytes>>20), err
}

// watching measures with a watch on ConfigMaps, which the operator has because a run owns some.
func (b *bench) watching(ctx context.Context, runs []*access) error {
	const child = "owned-%d"
	err := b.memoryOf(ctx, fmt.Sprintf("no run, and a watch on ConfigMaps, of which %d are owned", b.opts.owned), b.opts.settling, func() (string, error) {
		through, err := newEnd("proxied", runs[0].config, false)
		if err != nil {
			return "", err
		}
		for i := range b.opts.owned {
			if err := through.createConfigMap(ctx, memoryNamespace, fmt.Sprintf(child, i), i); err != nil {
				return "", err
			}
		}
		for _, run := range runs {
			if err := run.end(); err != nil {
				return "", err
			}
		}
		return "", b.provoke(ctx, fmt.Sprintf(child, 0))
	})
	if err != nil {
		return err
	}
	err = b.memoryOf(ctx, fmt.Sprintf("  while %d of the others are changed", b.opts.configMaps/10), resting, func() (string, error) {
		return b.stir(ctx)
	})
	if err != nil {
		return err
	}
	// The watch must have lasted to the end.
	return b.provoke(ctx, fmt.Sprintf(child, 1))
}

// stir changes ConfigMaps without an owner. It returns what that cost the
// operator, which sees the changes.
func (b *bench) stir(ctx context.Context) (string, error) {
	before, err := b.operator.usage()
	if err != nil {
		return "", err
	}
	changes := b.opts.configMaps / 10
	err = b.write(ctx, changes, func(i int) call {
		path := fmt.Sprintf("%s/nobodys-%d", configMaps(memoryNamespace), i)
		return call{http.MethodPatch, path, mergePatch, []byte(`{"data":{"number":"changed"}}`)}
	})
	if err != nil {
		return "", err
	}
	after, err := b.operator.usage()
	return fmt.Sprintf("CPU of the operator per change: %.3f ms", ms(after.cpu-before.cpu)/float64(changes)), err
}

// provoke changes a ConfigMap, and waits for the run that this causes for its
// owner.
func (b *bench) provoke(ctx context.Context, name string) error {
	direct, err := newEnd("direct", b.config, false)
	if err != nil {
		return err
	}
	if _, err := direct.do(ctx, call{http.MethodPatch, configMaps(memoryNamespace) + "/" + name, mergePatch, []byte(`{"data":{"number":"changed"}}`)}); err != nil {
		return err
	}
	run, err := b.nextAccess(ctx)
	if err != nil {
		return err
	}
	return run.end()
}
