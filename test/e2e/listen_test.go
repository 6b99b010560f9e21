package e2e

import (
	"encoding/hex"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rolewright/rolewright/test/must"
	"github.com/rolewright/rolewright/test/testenv"
)

// An operator listens only on the addresses that its flags name, and on the address of its API proxy, which is on the
// loopback device. None of them serves profiles.
func TestOperator_ListensOnWhatItsFlagsName(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	k := s.kind()
	s.role("listen", "- ansible.builtin.debug: {msg: heard}\n")
	s.watch(k, "role: listen")
	user := testenv.Address(t)
	o := s.start("--user-metrics-bind-address=" + user)
	k.create("it", nil)
	k.awaitReady("it")

	named := []string{
		strings.TrimPrefix(o.health, "http://"), strings.TrimSuffix(strings.TrimPrefix(o.metrics, "http://"), "/metrics"), user,
	}
	proxies := map[uint16]bool{}
	heard := listening(t, o.cmd.Process.Pid)
	for _, at := range heard {
		switch {
		case slices.Contains(named, at.String()):
		case at.Addr().IsLoopback():
			proxies[at.Port()] = true
		default:
			t.Errorf("it listens on %s, which no flag names", at)
		}
	}
	if len(proxies) != 1 {
		t.Errorf("it listens on the loopback ports %v, want that of the API proxy only", proxies)
	}
	for _, address := range named {
		if !slices.ContainsFunc(heard, func(at netip.AddrPort) bool { return at.String() == address }) {
			t.Errorf("it does not listen on %s: the test sees too little", address)
		}
		status, body, err := fetch(t.Context(), "http://"+address+"/debug/pprof/")
		if err == nil && status == http.StatusOK {
			t.Errorf("%s gives a profile: %.200s", address, body)
		}
	}
}

// socketLink is what a descriptor of a socket links to.
var socketLink = regexp.MustCompile(`^socket:\[(\d+)\]$`)

// listening returns the addresses on which a process listens for TCP.
func listening(t *testing.T, pid int) []netip.AddrPort {
	t.Helper()
	proc := fmt.Sprintf("/proc/%d", pid)
	links := must.Get(filepath.Glob(proc + "/fd/*"))(t)
	mine := map[string]bool{}
	for _, link := range links {
		target, _ := os.Readlink(link) // it may be closed by now
		if m := socketLink.FindStringSubmatch(target); m != nil {
			mine[m[1]] = true
		}
	}
	var found []netip.AddrPort
	for _, table := range []string{"tcp", "tcp6"} {
		text := must.Get(os.ReadFile(proc + "/net/" + table))(t)
		for line := range strings.Lines(string(text)) {
			const listens = "0A"
			if f := strings.Fields(line); len(f) > 9 && f[3] == listens && mine[f[9]] {
				found = append(found, addressOf(t, f[1]))
			}
		}
	}
	return found
}

// addressOf parses an address in /proc/net/tcp: words of four bytes in the machine's byte order, which is little endian
// wherever these tests run.
func addressOf(t *testing.T, text string) netip.AddrPort {
	t.Helper()
	host, port, _ := strings.Cut(text, ":")
	raw := must.Get(hex.DecodeString(host))(t)
	for i := 0; i+4 <= len(raw); i += 4 {
		slices.Reverse(raw[i : i+4])
	}
	address, ok := netip.AddrFromSlice(net.IP(raw))
	number, err := strconv.ParseUint(port, 16, 16)
	if err != nil || !ok {
		t.Fatalf("%q is not an address: %v", text, err)
	}
	return netip.AddrPortFrom(address.Unmap(), uint16(number))
}
