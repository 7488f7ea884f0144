package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
)

func TestCommittedOutputIsCurrent(t *testing.T) {
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		got, err := os.ReadFile(filepath.Join(outputDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what this program writes: run go generate in collective/reduce", name)
		}
	}
}

func TestOutputIsReproducible(t *testing.T) {
	first, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	second, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name := range first {
		if !bytes.Equal(first[name], second[name]) {
			t.Errorf("two runs wrote two different %s", name)
		}
	}
}
