package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rolewright/rolewright/internal/redact"
)

// masking measures how long it takes to learn a mebibyte of secret values, and to
// mask text: what a run prints, and text of nothing but values. It counts the time
// of the processor.
func (b *bench) masking(ctx context.Context) error {
	const mebibyte = 1 << 20
	long := strings.Repeat("a", 40)
	random := uint64(1)
	fmt.Printf("\n%-44s %10s %10s   %s\n", "masking, aims: 300 ms and 50 MB/s", "add, ms", "MB/s", "text")
	for _, values := range []struct {
		name  string
		count int
		value func(i int) string
	}{
		{"few values", 10, func(i int) string { return fmt.Sprintf("secret-value-%d", i) }},
		{"short ones with a common beginning", 20_000, func(i int) string { return fmt.Sprintf("aaaa%05d", i) }},
		{"long ones with a common beginning", 20_000, func(i int) string { return fmt.Sprintf("%s%05d", long, i) }},
		{"of many lengths with a common beginning", 20_000, func(i int) string { return strings.Repeat("a", 6+i*7%900) + fmt.Sprint(i) }},
		{"one long value", 1, func(int) string { return strings.Repeat("a", mebibyte/2) }},
		{"a long and a short one", 2, func(i int) string { return []string{strings.Repeat("ab", mebibyte/4), "bababa"}[i] }},
		{"random values", 20_000, func(int) string {
			random = random*6364136223846793005 + 1442695040888963407 // Knuth, TAOCP 3.3.4
			return fmt.Sprintf("%016x%016x%016x", random*31, random*37, random*41)
		}},
	} {
		var all []string
		for size, i := 0, 0; i < values.count && size < mebibyte; i++ {
			all = append(all, values.value(i))
			size += len(all[i])
		}
		m := redact.New()
		before := processorTime()
		m.Add(ctx, all...)
		added := processorTime() - before
		if why := m.Withheld(); why != "" {
			return fmt.Errorf("mask %s: withheld: %s", values.name, why)
		}
		for _, text := range []struct{ name, text string }{
			{"output", strings.Repeat("TASK [Do something useful] ok: [localhost] => {\"msg\": \"done\", \"changed\": false}\n", 800)},
			{"output with escapes", strings.Repeat("ok: [localhost] => {\"msg\": \"a\\nb \\u00e4 100%\", \"changed\": false}\n", 1000)},
			{"nothing but a", strings.Repeat("a", mebibyte/16)},
			{"nothing but ab", strings.Repeat("ab", mebibyte/32)},
			{"nothing but values", strings.Repeat(strings.Join(all[:min(len(all), 1000)], " ")+" ", 1+min(2000/len(all), 4))},
		} {
			n, before := 0, processorTime()
			for processorTime()-before < b.opts.masking {
				m.Mask(text.text)
				n += len(text.text)
			}
			fmt.Printf("%-44s %10.1f %10.1f   %s\n", values.name, added.Seconds()*1e3, float64(n)/(processorTime()-before).Seconds()/1e6, text.name)
		}
	}
	return nil
}

// processorTime is what this process has had.
func processorTime() time.Duration {
	var usage unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &usage); err != nil {
		return 0 // which cannot be: the address is ours
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
