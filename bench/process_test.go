package main

import (
	"os"
	"testing"
)

// The process that is looked at in this test is the test.
func TestProcess(t *testing.T) {
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p, err := findProcess(binary)
	if err != nil {
		t.Fatal(err)
	}
	if megabytes, err := p.resident(); err != nil || megabytes < 1 || megabytes > 10_000 {
		t.Errorf("%.1f MB, %v", megabytes, err)
	}
	if _, err := p.cpu(); err != nil {
		t.Error(err)
	}
	if _, err := findProcess(binary + "-none"); err == nil {
		t.Error("a program that does not run was found")
	}
}
