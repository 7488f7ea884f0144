// Command embed is an HTTP service that embeds a polyrail node: its replicas average a
// vector among themselves, on a ticker.
//
//	embed -name a -http :8080 -bind 10.0.0.1:7946 -rail r0=tcp:eth1 -replicas 2
//	embed -name b -http :8080 -bind 10.0.0.2:7946 -rail r0=tcp:eth1 -replicas 2 -join 10.0.0.1:7946
//
//	curl -X PUT  http://a:8080/vector -d '[1, 2, 3, 4]'
//	curl         http://b:8080/average
package main

import (
	"context"
	"errors"
	"flag"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/polyrail/polyrail"
)

// closeTimeout bounds the farewell to clients and to the cluster.
const closeTimeout = 5 * time.Second

func main() {
	cfg := polyrail.DefaultConfig()
	flag.StringVar(&cfg.Name, "name", cfg.Name, "name of this replica, unique")
	flag.StringVar(&cfg.Bind, "bind", cfg.Bind, "ADDR:PORT for gossip")
	flag.Func("join", "ADDR:PORT of another replica", func(s string) error {
		cfg.Join = append(cfg.Join, s)
		return nil
	})
	flag.Func("rail", "NAME=tcp:DEVICE, once for each rail", func(s string) error {
		r, err := polyrail.ParseRail(s)
		cfg.Rails = append(cfg.Rails, r)
		return err
	})
	address := flag.String("http", "127.0.0.1:8080", "ADDR:PORT for HTTP")
	replicas := flag.Int("replicas", 1, "number of replicas")
	every := flag.Duration("every", time.Second, "time between rounds")
	flag.Parse()
	if len(cfg.Rails) == 0 {
		cfg.Rails = []polyrail.Rail{{Name: "r0", Protocol: "tcp", Device: "127.0.0.1"}}
	}

	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := serve(ctx, cfg, *address, *replicas, *every); err != nil {
		slog.Error("embed", "err", err)
		os.Exit(1)
	}
}

// serve runs one replica until ctx ends.
func serve(ctx context.Context, cfg polyrail.Config, address string, replicas int, every time.Duration) error {
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return err
	}
	r := newReplica(node, replicas)
	server := &http.Server{Addr: address, Handler: r.handler(), ReadHeaderTimeout: closeTimeout}
	ctx, cancel := context.WithCancelCause(ctx)
	go func() { cancel(server.ListenAndServe()) }()

	ticker := time.NewTicker(every)
	defer ticker.Stop()
	r.average(ctx, ticker.C) // until a signal, or until the server has failed

	cause := context.Cause(ctx)
	if errors.Is(cause, context.Canceled) {
		cause = nil
	}
	bounded, done := context.WithTimeout(context.Background(), closeTimeout)
	defer done()
	return errors.Join(cause, server.Shutdown(bounded), node.Close(bounded))
}
