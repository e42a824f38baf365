// Package lograft runs a Lograft node for tests with Testcontainers.
package lograft

import (
	"context"
	"fmt"
	"net"

	"github.com/testcontainers/testcontainers-go"
	"github.com/testcontainers/testcontainers-go/wait"
)

// Container is a running node; clients connect to BootstrapServers.
type Container struct {
	testcontainers.Container
	BootstrapServers string
}

// Run starts a node. Clients get the node's address from the node itself, so the container listens
// on the port under which this machine reaches it.
func Run(ctx context.Context, image string) (*Container, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	servers := fmt.Sprintf("localhost:%d", port)
	container, err := testcontainers.Run(ctx, image,
		testcontainers.WithExposedPorts(fmt.Sprintf("%d:%d/tcp", port, port)),
		testcontainers.WithEnv(map[string]string{
			"KAFKA_LISTENERS":            fmt.Sprintf("PLAINTEXT://:%d,CONTROLLER://localhost:9093", port),
			"KAFKA_ADVERTISED_LISTENERS": "PLAINTEXT://" + servers,
		}),
		testcontainers.WithWaitStrategy(wait.ForLog("Lograft is listening on")),
	)
	if container == nil {
		return nil, err
	}
	return &Container{Container: container, BootstrapServers: servers}, err
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}
