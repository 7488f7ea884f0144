package cluster

import (
	"errors"
	"net"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
)

func TestIdentifyReadsWhatGossipCarries(t *testing.T) {
	self := Member{Node: "me", Incarnation: 1, Version: 3}
	node := func(name string, meta []byte) *memberlist.Node {
		return &memberlist.Node{Name: name, Addr: net.IPv4(10, 0, 0, 2), Port: 80, Meta: meta}
	}
	m, err := identify(self, node(processName("a", 255), encodeMeta(3, 255, staying, "")))
	if err != nil || m != (Member{Node: "a", Incarnation: 255, Version: 3, Addr: "10.0.0.2:80"}) {
		t.Errorf("got %+v, %v", m, err)
	}
	if leaves(node("a#ff", encodeMeta(3, 255, staying, ""))) || !leaves(node("a#ff", encodeMeta(3, 255, leaving, ""))) {
		t.Error("the metadata do not say who leaves")
	}
	if n, err := m.node(); err != nil || n.Name != "a#ff" || n.Address() != "10.0.0.2:80" {
		t.Errorf("back: %+v, %v", n, err)
	}
	for name, bad := range map[string]struct {
		node *memberlist.Node
		want string
	}{
		"no metadata":       {node("a#1", nil), "no version"},
		"another version":   {node("a#1", encodeMeta(4, 1, staying, "")), "version 4 of the protocol, this node \"me\" version 3"},
		"a later format":    {node("other name", []byte{4, 0, 0, 0, 9}), "version 4"},
		"no incarnation":    {node("a", encodeMeta(3, 1, staying, "")), "malformed"},
		"wrong incarnation": {node("a#2", encodeMeta(3, 1, staying, "")), "disagree"},
		"short metadata":    {node("a#1", encodeMeta(3, 1, staying, "")[:8]), "8 bytes"},
		"unknown intent":    {node("a#1", encodeMeta(3, 1, 2, "")), "neither"},
		"blank in the name": {node("a b#1", encodeMeta(3, 1, staying, "")), "malformed"},
	} {
		_, err := identify(self, bad.node)
		var v *VersionError
		if !errors.As(err, &v) || !strings.Contains(err.Error(), bad.want) || !strings.Contains(err.Error(), "10.0.0.2:80") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if len(encodeMeta(1, 1, staying, "")) > memberlist.MetaMaxSize {
		t.Error("metadata is too long for gossip")
	}
}
