package view

import (
	"fmt"
	"testing"
)

func TestRanksOfAHostAreTogetherInTheOrderOfTheLowest(t *testing.T) {
	hosts := []Host{{"y", ""}, {"x", ""}, {"", ""}, {"y", "m"}, {"", ""}, {"x", ""}}
	if got := fmt.Sprint(Together(hosts)); got != "[[0 3] [1 5] [2] [4]]" {
		t.Error(got)
	}
}

func TestMemoryIsSharedOnOneHostInOneDomain(t *testing.T) {
	here := Host{"h", "a:1000"}
	for other, want := range map[Host]bool{
		{"h", "b:1000"}: true, {"h", "b:0"}: false, {"h", ""}: false, {"i", "b:1000"}: false, {"", "b:1000"}: false,
	} {
		if here.SharesMemory(other) != want || other.SharesMemory(here) != want {
			t.Errorf("%v and %v: want %v", here, other, want)
		}
		if AllShareMemory([]Host{here, other, here}) != want {
			t.Errorf("all of %v and %v: want %v", here, other, want)
		}
	}
	if AllShareMemory([]Host{here}) {
		t.Error("a rank alone shares memory")
	}
}
