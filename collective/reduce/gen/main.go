// Command gen writes the AVX2 and F16C kernels of package reduce: kernels_amd64.s, and
// kernels_amd64.go with their declarations and the tables that name them.
//
// It is a module of its own so that polyrail does not depend on avo. Run it with
// go generate in collective/reduce; its test fails when the committed output is not current.
package main

import (
	"log"
	"os"
	"path/filepath"
)

// outputDir is package reduce, seen from this directory.
const outputDir = ".."

func main() {
	log.SetFlags(0)
	log.SetPrefix("gen: ")
	files, err := generate()
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(outputDir, name), text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
