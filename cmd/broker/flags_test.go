package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestNoFlagTakesASecret: others see the command line. What is secret comes by a
// file's name; a request key is none.
func TestNoFlagTakesASecret(t *testing.T) {
	secret := regexp.MustCompile(`(?i)secret|token|bearer|password|passphrase|assertion|credential|private|\bkey\b|\bpin\b`)
	seen := 0
	flag := regexp.MustCompile(`(?m)^.*--([a-z-]+)(?: [a-z]+)? {3,}(.*)$`)
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, f := range flag.FindAllStringSubmatch(cmd.LocalFlags().FlagUsages(), -1) {
			seen++
			name, usage := f[1], f[2]
			fromFile := strings.HasSuffix(name, "-file") && strings.HasPrefix(usage, "file with ")
			if !fromFile && name != "key" && secret.MatchString(name+" "+usage) {
				t.Errorf("%s --%s %q: does it take a secret?", cmd.CommandPath(), name, usage)
			}
		}
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
	}
	walk(program(world{}))
	if seen < 15 {
		t.Errorf("%d flags: the test no longer finds them", seen)
	}
}
