//go:build !race

package board

func beforeShow() {}
func afterShow()  {}
