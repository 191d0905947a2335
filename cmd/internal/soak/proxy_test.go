//go:build long

package soak

import (
	"io"
	"net"
	gosync "sync"
	"testing"
)

// proxy carries TCP connections to a server, until it is cut: then all of them
// break, and new ones are refused.
type proxy struct {
	t       *testing.T
	server  string
	address string

	mu       gosync.Mutex
	listener net.Listener // nil while cut
	open     map[net.Conn]struct{}
	running  gosync.WaitGroup
}

func newProxy(t *testing.T, server string) *proxy {
	t.Helper()
	p := &proxy{t: t, server: server, address: "127.0.0.1:0", open: map[net.Conn]struct{}{}}
	p.join()
	t.Cleanup(p.cut)
	return p
}

// join lets connections through, at the same address as before.
func (p *proxy) join() {
	p.t.Helper()
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.mu.Lock()
	p.listener, p.address = listener, listener.Addr().String()
	p.mu.Unlock()
	p.running.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return // cut
			}
			p.running.Go(func() { p.carry(listener, client) })
		}
	})
}

func (p *proxy) cut() {
	p.mu.Lock()
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
	for conn := range p.open {
		conn.Close()
	}
	p.mu.Unlock()
	p.running.Wait()
}

func (p *proxy) carry(listener net.Listener, client net.Conn) {
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		client.Close()
		return
	}
	p.mu.Lock()
	cut := p.listener != listener
	if !cut {
		p.open[client], p.open[server] = struct{}{}, struct{}{}
	}
	p.mu.Unlock()
	if !cut {
		back := make(chan struct{})
		go func() {
			defer close(back)
			io.Copy(client, server) //nolint:errcheck // ends with the connection, as it is meant to
			client.Close()
		}()
		io.Copy(server, client) //nolint:errcheck // ends with the connection, as it is meant to
		server.Close()
		<-back
	}
	client.Close()
	server.Close()
	p.mu.Lock()
	delete(p.open, client)
	delete(p.open, server)
	p.mu.Unlock()
}
