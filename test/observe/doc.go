// Package observe tests what a node shows of itself over HTTP, on whole nodes.
package observe
