// Command allreduce is the shortest program on polyrail: it adds up a vector over several processes.
//
// Alone, for a first look:
//
//	go run ./examples/allreduce
//
// On two hosts:
//
//	allreduce -name a -bind 10.0.0.1:7946 -rail r0=tcp:eth1 -size 2
//	allreduce -name b -bind 10.0.0.2:7946 -rail r0=tcp:eth1 -size 2 -join 10.0.0.1:7946
package main

import (
	"context"
	"flag"
	"fmt"
	"log"

	"github.com/polyrail/polyrail"
)

func main() {
	cfg := polyrail.DefaultConfig()
	flag.StringVar(&cfg.Name, "name", cfg.Name, "name of this process, unique")
	flag.StringVar(&cfg.Bind, "bind", cfg.Bind, "ADDR:PORT for gossip")
	join := flag.String("join", "", "ADDR:PORT of another process")
	rail := flag.String("rail", "r0=tcp:127.0.0.1", "NAME=tcp:DEVICE")
	size := flag.Int("size", 1, "number of processes")
	flag.Parse()
	if *join != "" {
		cfg.Join = []string{*join}
	}
	r, err := polyrail.ParseRail(*rail)
	if err != nil {
		log.Fatal(err)
	}
	cfg.Rails = []polyrail.Rail{r}

	sum, err := addUp(context.Background(), cfg, *size, []float32{1, 2, 3})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sum)
}

// addUp joins the cluster and returns the sum of the vectors of all size processes.
func addUp(ctx context.Context, cfg polyrail.Config, size int, vector []float32) ([]float32, error) {
	node, err := polyrail.Start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer node.Close(ctx)

	comm, err := node.Communicator(ctx, "example", size)
	if err != nil {
		return nil, err
	}
	if err := polyrail.AllReduce(ctx, comm, vector, polyrail.Sum); err != nil {
		return nil, err
	}
	return vector, comm.Close(ctx)
}
