//go:build !linux

package bridge

import "errors"

func openEvent() (int, error) { return -1, errors.New("this system has no eventfd") }
func signal(int)              {}
func drain(int)               {}
func closeEvent(int)          {}
