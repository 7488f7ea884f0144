package nic

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// maxUpdates is how many updates of all the host's interfaces wait for us; what is more
// waits in the kernel.
const maxUpdates = 64

// Watch calls report with the interface's state, and then with each change of it, until ctx ends or
// the kernel's news cease. Up means that it is set up and has its carrier. The interface is known
// by its name: one that is deleted is down, and one that is made again under the name is the same.
// Index is its number, 0 while there is none.
func Watch(ctx context.Context, name string, report func(up bool, index int)) error {
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
	index, up := 0, false
	switch link, err := netlink.LinkByName(name); {
	case err == nil:
		index, up = link.Attrs().Index, isUp(link.Attrs().RawFlags)
	case !errors.As(err, new(netlink.LinkNotFoundError)):
		return fmt.Errorf("interface %s: %w", name, err)
	}
	report(up, index)
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case u, ok := <-updates:
			if !ok {
				return fmt.Errorf("watching interface %s: %w", name, failed)
			}
			wasUp, was := up, index
			switch deleted := u.Header.Type == unix.RTM_DELLINK; {
			case int(u.Index) == index && (deleted || u.Attrs().Name != name):
				index, up = 0, false
			case u.Attrs().Name == name && !deleted:
				index, up = int(u.Index), isUp(u.Attrs().RawFlags)
			}
			if up != wasUp || up && index != was {
				report(up, index)
			}
		}
	}
}

func isUp(flags uint32) bool { return flags&unix.IFF_UP != 0 && flags&unix.IFF_LOWER_UP != 0 }
