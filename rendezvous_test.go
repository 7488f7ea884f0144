package polyrail_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	. "github.com/polyrail/polyrail"
)

func TestRendezvousIsReadFromAURL(t *testing.T) {
	for text, want := range map[string]Rendezvous{
		"":                        {},
		"redis://10.0.0.9:7000/3": {Redis: RedisOptions{Addr: "10.0.0.9:7000", DB: 3}},
		"redis://store":           {Redis: RedisOptions{Addr: "store:6379"}},
		"rediss://me:s%40cret@[fd00::1]:1/": {Redis: RedisOptions{Addr: "[fd00::1]:1",
			Username: "me", Password: "s@cret", TLS: true}},
		"redis://:only%2Fpassword@store:1/15": {Redis: RedisOptions{Addr: "store:1",
			Password: "only/password", DB: 15}},
		"dir:///mnt/shared":         {Directory: "/mnt/shared"},
		"file:///mnt/with%20blank/": {Directory: "/mnt/with blank"},
	} {
		got, err := ParseRendezvous(text)
		if err != nil || got != want {
			t.Errorf("%q reads as %+v, error %v", text, got, err)
		}
		if again, err := ParseRendezvous(got.URL()); err != nil || again != want {
			t.Errorf("%q is written as %q, which reads as %+v, error %v", text, got.URL(), again, err)
		}
	}
}

func TestAWrongRendezvousURLIsExplainedWithoutItsPassword(t *testing.T) {
	for text, want := range map[string]string{
		"redis://":                      "host",
		"redis://x:secret@":             "host",
		"redis://x:secret@host:0":       "port",
		"redis://x:secret@host:port":    "port",
		"redis://x:secret@host:1/name":  `"name"`,
		"redis://x:secret@host:1/-1":    "-1",
		"redis://x:secret@host:1/0?a=b": "path",
		"dir://relative":                "three slashes",
		"dir:relative":                  "three slashes",
		"etcd://x:secret@host":          `"etcd"`,
		"list:10.0.0.1:7946":            "--join",
		"nothing":                       "scheme",
		"redis://:secret/x@host:1":      "%2F",
		"redis://:secret?x@host:1":      "%2F",
		"redis://:secret#x@host:1":      "%2F",
		"redis://:1234/secret@host:1":   "%2F",
		"redis://:1234?secret@host:1":   "%3F",
		"redis://host:1/0?p=secret":     "path",
		"redis://x:secret%@host:1":      "URL",
		"x:secret@host:1":               "an @",
	} {
		_, err := ParseRendezvous(text)
		if !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) ||
			strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

func TestValidateListsTheFaultsOfARendezvous(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Rails = []Rail{{Name: "a", Protocol: "tcp", Device: "lo"}}
	cfg.Rendezvous = Rendezvous{Redis: RedisOptions{Addr: "host", DB: -1, Password: "secret"},
		Directory: "here"}
	err := cfg.Validate()
	if !errors.Is(err, ErrConfig) || strings.Contains(fmt.Sprint(err), "secret") {
		t.Fatalf("got %v", err)
	}
	for _, want := range []string{"one of them", `directory "here"`, `address "host"`, "database -1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s is missing in: %v", want, err)
		}
	}
}

func TestNodesMeetInADirectoryAndLeaveItEmpty(t *testing.T) {
	dir := t.TempDir()
	inBed(t, 3, 1, func(c *Config) { c.Join, c.Rendezvous.Directory = nil, dir }, func(b *bed) {
		b.each(func(i int) error {
			comm, err := b.Nodes[i].Communicator(b.t.Context(), "c", len(b.Nodes))
			if err != nil {
				return err
			}
			return comm.Close(b.t.Context())
		})
		if left, _ := filepath.Glob(filepath.Join(dir, "*", "*.json")); len(left) != len(b.Nodes) {
			t.Errorf("the directory holds %q", left)
		}
	})
	if left, _ := filepath.Glob(filepath.Join(dir, "*", "*")); len(left) != 0 {
		t.Errorf("the nodes left %q", left)
	}
}

func TestStartNamesARendezvousThatCannotBeUsed(t *testing.T) {
	for name, stopped := range map[string]func(context.Context) (context.Context, context.CancelFunc){
		"until the context ends": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 3*time.Second)
		},
		"until it gives up": context.WithCancel,
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "not-mounted")
			inBed(t, 1, 1, nil, func(b *bed) {
				ctx, cancel := stopped(b.t.Context())
				defer cancel()
				cfg := b.Configs[0]
				cfg.Name, cfg.Bind, cfg.Join, cfg.Rendezvous.Directory = "late", "10.0.0.9:7946", nil, dir
				cfg.Rails = []Rail{{Name: "rail0", Transport: b.Rails.Transport("late"), Device: "eth0"}}
				_, err := b.Join(ctx, cfg)
				if !errors.Is(err, ErrTimeout) || !errors.Is(err, os.ErrNotExist) ||
					!strings.Contains(err.Error(), "dir://"+dir) {
					t.Errorf("got %v", err)
				}
				if ctx.Err() != nil && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("not said why: %v", err)
				}
			})
		})
	}
}
