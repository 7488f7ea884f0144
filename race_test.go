//go:build race

package polyrail_test

// The race detector has pools forget on purpose.
func init() { raceDetector = true }
