package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// A process is the broker as the kernel sees it.
type process string // its folder in /proc

// findProcess finds the process that runs this program, of which there is one.
func findProcess(binary string) (process, error) {
	lines, err := filepath.Glob("/proc/[0-9]*/cmdline") // not exe, which only root may read of a broker
	if err != nil {
		return "", err
	}
	for _, line := range lines {
		if raw, err := os.ReadFile(line); err == nil && strings.HasPrefix(string(raw), binary+"\x00") {
			return process(filepath.Dir(line)), nil
		}
	}
	return "", errors.New("the broker is not in /proc")
}

// tick is the unit of times in /proc: USER_HZ, which is 100 wherever Go runs on Linux.
const tick = time.Second / 100

// cpu is the time spent so far, in user and kernel mode (proc(5), stat, 14 and 15).
func (p process) cpu() (time.Duration, error) {
	raw, err := os.ReadFile(string(p) + "/stat")
	if err != nil {
		return 0, err
	}
	_, text, _ := strings.Cut(string(raw), ") ") // the name before it may hold anything
	fields := strings.Fields(text)
	if len(fields) < 13 {
		return 0, fmt.Errorf("%s/stat: %q", p, raw)
	}
	user, err1 := strconv.Atoi(fields[11])
	kernel, err2 := strconv.Atoi(fields[12])
	return time.Duration(user+kernel) * tick, errors.Join(err1, err2)
}

// resident is the memory that is in use, in MB.
func (p process) resident() (float64, error) {
	raw, err := os.ReadFile(string(p) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		if text, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kilobytes, err := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(text), " kB"))
			return float64(kilobytes) / 1000, err
		}
	}
	return 0, fmt.Errorf("%s/status has no VmRSS", p)
}
