package main

import (
	"os"
	"path/filepath"
	"testing"
)

func TestTheMemoryOfAContainerIsWhatItMayHave(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  int
	}{
		"Nothing": {nil, 0},
		"NoLimit": {map[string]string{"proc/self/cgroup": "0::/a\n",
			"sys/fs/cgroup/a/memory.max": "max\n"}, 0},
		"Own": {map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "4096\n", "sys/fs/cgroup/a/memory.max": "8192\n"}, 4096},
		"OfTheGroupAbove": {map[string]string{"proc/self/cgroup": "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max": "max\n", "sys/fs/cgroup/a/memory.max": "8192\n"}, 8192},
		"Version1": {map[string]string{"proc/self/cgroup": "4:memory,x:/a\n3:cpu:/\n",
			"sys/fs/cgroup/memory/a/memory.limit_in_bytes": "4096\n"}, 4096},
		"InsideAContainer": {map[string]string{"proc/self/cgroup": "4:memory:/docker/1234\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes": "4096\n"}, 4096},
		"NoText": {map[string]string{"proc/self/cgroup": "memory\n::\n0::../..\n"}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, text := range c.files {
				path = filepath.Join(root, path)
				if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if got := groupMemory(root); got != c.want {
				t.Errorf("%d bytes, want %d", got, c.want)
			}
		})
	}
}
