package main

import (
	"fmt"
	"io"
	"net"
)

// forwarder forwards connections until it is closed.
type forwarder struct {
	listener net.Listener
	done     chan struct{}
}

func forward(from, to string) (*forwarder, error) {
	listener, err := net.Listen("tcp", from)
	if err != nil {
		return nil, fmt.Errorf("listen on the address of the Service kubernetes: %w", err)
	}
	f := &forwarder{listener: listener, done: make(chan struct{})}
	go func() {
		defer close(f.done)
		for {
			client, err := listener.Accept()
			if err != nil {
				return // closed
			}
			go relay(client, to)
		}
	}()
	return f, nil
}

// close stops listening. Open connections end with their clients, or at the latest with the namespaces.
func (f *forwarder) close() {
	if f == nil {
		return
	}
	_ = f.listener.Close() // closing is all that matters
	<-f.done
}

// relay copies in both directions until both have ended.
func relay(client net.Conn, to string) {
	defer client.Close()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return // the client sees its connection end
	}
	defer server.Close()
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(server, client) // errors end the connection
		_ = server.(*net.TCPConn).CloseWrite()
		close(ended)
	}()
	_, _ = io.Copy(client, server)
	_ = client.(*net.TCPConn).CloseWrite()
	<-ended
}
