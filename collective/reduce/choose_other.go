//go:build !amd64 || purego

package reduce

func choose() implementation { return portable }
