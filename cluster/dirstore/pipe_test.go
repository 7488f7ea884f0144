package dirstore

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/polyrail/polyrail/cluster"
)

// A pipe in place of a cluster's directory, or a link to one, stops no call, and so none of the later ones.
func TestAPipeInPlaceOfAClustersDirectoryIsNotOpened(t *testing.T) {
	for _, linked := range []bool{false, true} {
		dir := t.TempDir()
		s := New(dir)
		pipe := s.of("train")
		if linked {
			pipe = filepath.Join(dir, "pipe")
			if err := os.Symlink(pipe, s.of("train")); err != nil {
				t.Fatal(err)
			}
		}
		if err := syscall.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		list := func() error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			_, err := s.List(ctx, "train", time.Minute)
			return err
		}
		if err := list(); err == nil {
			t.Error("a pipe was listed")
		}
		for _, name := range []string{pipe, s.of("train")} {
			_ = os.Remove(name)
		}
		e := cluster.Entry{Cluster: "train", Node: "a", Incarnation: 1, Addr: "127.0.0.1:7946"}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := s.Put(ctx, e, time.Minute)
		cancel()
		if err == nil {
			err = list()
		}
		if err != nil {
			t.Errorf("linked %v, after the pipe has gone: %v", linked, err)
		}
	}
}
