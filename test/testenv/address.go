package testenv

import (
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"testing"
)

// Address returns a loopback address on which no process listens, for a program that will listen there. The kernel does
// not hand its port out, as it may with the port of a closed listener, and no other test gets it before this one ends.
func Address(t testing.TB) string {
	t.Helper()
	// The range of ports that the kernel hands out to programs that ask for any port: ip(7).
	first, last := 32768, 60999
	text, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range")
	if err == nil {
		_, err = fmt.Sscan(string(text), &first, &last)
	}
	if err != nil {
		t.Fatalf("read which ports are handed out: %v", err)
	}
	const lowest, ports, tries = 10000, 20000, 1000
	for range tries {
		port := lowest + rand.IntN(ports)
		if port >= first && port <= last {
			continue
		}
		// A name that only one socket of the machine can have: unix(7).
		mine, err := net.Listen("unix", fmt.Sprintf("@rolewright-test-port-%d", port))
		if err != nil {
			continue
		}
		address := fmt.Sprintf("127.0.0.1:%d", port)
		free, err := net.Listen("tcp", address)
		if err != nil {
			_ = mine.Close()
			continue
		}
		_ = free.Close()
		t.Cleanup(func() { _ = mine.Close() })
		return address
	}
	t.Fatalf("no port is free from %d to %d that the kernel does not hand out", lowest, lowest+ports)
	return ""
}
