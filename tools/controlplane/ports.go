package main

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// port is a loopback TCP port that belongs to this process until it ends: the socket is bound with SO_REUSEPORT and
// never listens. The programs bind the same port with the same option (etcd --socket-reuse-port, kube-apiserver
// --permit-port-sharing), while the kernel gives it to no one else. So two control planes that start at once cannot
// clash, and no retry is needed. kwok has no such option: its port was only free when it was chosen.
type port struct {
	fd     int
	number int
}

func reservePort() (port, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return port{}, fmt.Errorf("reserve a port: open a socket: %w", err)
	}
	number, err := bindLoopback(fd)
	if err != nil {
		_ = unix.Close(fd) // the error that matters is the one above
		return port{}, fmt.Errorf("reserve a port: %w", err)
	}
	return port{fd: fd, number: number}, nil
}

func bindLoopback(fd int) (int, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1); err != nil {
		return 0, fmt.Errorf("set SO_REUSEPORT: %w", err)
	}
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return 0, fmt.Errorf("bind a loopback port: %w", err)
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return 0, fmt.Errorf("read the bound port: %w", err)
	}
	address, ok := name.(*unix.SockaddrInet4)
	if !ok {
		return 0, fmt.Errorf("read the bound port: unexpected address %T", name)
	}
	return address.Port, nil
}

func (p port) release() {
	_ = unix.Close(p.fd) // a socket that never carried data has nothing to lose
}

func (p port) address() string {
	return fmt.Sprintf("127.0.0.1:%d", p.number)
}

func (p port) url() string {
	return "https://" + p.address()
}
