//go:build !linux

package nic

import (
	"context"
	"errors"
)

// Watch is Linux's.
func Watch(context.Context, string, func(up bool, index int)) error { return errors.ErrUnsupported }
