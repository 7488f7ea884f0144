package nic

import (
	"context"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxUpdates is how many updates of all the host's interfaces wait for us; what is more
// waits in the kernel.
const maxUpdates = 64

// Watch calls report with the interface's state, and then with each change of it, until ctx ends or the
// kernel's news cease. Up means that it is set up and has its carrier.
func Watch(ctx context.Context, name string, report func(up bool)) error {
	done := make(chan struct{})
	updates := make(chan netlink.LinkUpdate, maxUpdates)
	var failed error // why updates was closed
	// Subscribed before the first look, so that no change is missed between the two.
	err := netlink.LinkSubscribeWithOptions(updates, done, netlink.LinkSubscribeOptions{ErrorCallback: func(err error) { failed = err }})
	if err != nil {
		return fmt.Errorf("watching interface %s: %w", name, err)
	}
	defer func() {
		close(done)
		for range updates { // ends the goroutine that feeds it
		}
	}()
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("interface %s: %w", name, err)
	}
	index, was := link.Attrs().Index, isUp(link.Attrs().RawFlags)
	report(was)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u, ok := <-updates:
			if !ok {
				return fmt.Errorf("watching interface %s: %w", name, failed)
			}
			if int(u.Index) != index {
				continue
			}
			if up := u.Header.Type != unix.RTM_DELLINK && isUp(u.Attrs().RawFlags); up != was {
				was = up
				report(up)
			}
		}
	}
}

func isUp(flags uint32) bool { return flags&unix.IFF_UP != 0 && flags&unix.IFF_LOWER_UP != 0 }
