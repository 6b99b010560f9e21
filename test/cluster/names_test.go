//go:build e2e

package cluster

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"

	"github.com/rolewright/rolewright/test/must"
)

// answerNames is the cluster's DNS until the test ends, for the Pods of a headless Service in the default namespace.
func answerNames(t *testing.T, s *shell, service string) {
	t.Helper()
	conn := must.Get(net.ListenPacket("udp", "10.244.0.1:53"))(t)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		var names map[string]netip.Addr
		var asked time.Time
		question := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(question)
			if err != nil {
				return // it is closed
			}
			if time.Since(asked) > time.Second {
				names, asked = endpoints(s, service), time.Now()
			}
			if answer, err := answered(question[:n], names); err == nil {
				_, _ = conn.WriteTo(answer, from) // a client without an answer asks again
			}
		}
	}()
	t.Cleanup(func() {
		_ = conn.Close()
		<-ended
	})
}

// endpoints returns the addresses of a Service's Pods by name.
func endpoints(s *shell, service string) map[string]netip.Addr {
	out, _ := s.run("get", "endpointslices", "--selector=kubernetes.io/service-name="+service,
		`--output=jsonpath={range .items[*].endpoints[?(@.conditions.ready==true)]}{.hostname} {.addresses[0]}{"\n"}{end}`)
	names := map[string]netip.Addr{}
	for line := range strings.Lines(out) {
		name, address, _ := strings.Cut(strings.TrimSpace(line), " ")
		if addr, err := netip.ParseAddr(address); err == nil {
			names[name+"."+service+".default.svc.cluster.local."] = addr
		}
	}
	return names
}

// answered returns the answer to a question.
func answered(question []byte, names map[string]netip.Addr) ([]byte, error) {
	var message dnsmessage.Message
	if err := message.Unpack(question); err != nil || len(message.Questions) != 1 {
		return nil, fmt.Errorf("no question: %w", err)
	}
	asked := message.Questions[0]
	addr, known := names[asked.Name.String()]
	message.Response, message.Authoritative, message.Additionals = true, true, nil
	switch {
	case !known:
		message.RCode = dnsmessage.RCodeNameError
	case asked.Type == dnsmessage.TypeA:
		message.Answers = []dnsmessage.Resource{{
			Header: dnsmessage.ResourceHeader{Name: asked.Name, Class: asked.Class},
			Body:   &dnsmessage.AResource{A: addr.As4()},
		}}
	}
	return message.Pack()
}
