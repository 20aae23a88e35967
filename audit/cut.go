package audit

import (
	"bufio"
	"fmt"
	"io"
	"strings"
)

// FindCut returns what a record says was pruned before the first of these lines; nil
// where they begin with the first record, or no record says so. It believes them:
// [Evidence.Verify] with that Cut does not.
func FindCut(r io.Reader) *Pruned {
	in := bufio.NewReaderSize(r, lineLimit)
	for first := uint64(0); ; {
		line, err := in.ReadSlice('\n')
		if seq, _ := seqOf(line); first == 0 {
			first = seq
		}
		if err != nil || first <= 1 {
			return nil
		}
		if p := said(line, Retention).Pruned; p != nil && p.To.Seq+1 == first {
			return p
		}
	}
}

// begin goes to where the chain begins.
func (w *walk) begin(cut *Pruned) (why string) {
	if cut == nil {
		return ""
	}
	tree, err := TreeOf(cut.To.Seq, cut.Tree)
	if err != nil {
		return "follows what was pruned, of which no tree is known"
	}
	origin, _, _ := strings.Cut(cut.Head, "\n")
	w.Ledger = strings.TrimPrefix(origin, Origin(""))
	w.start, w.tree, w.Before = Head{cut.To.Seq, cut.To.Hash}, tree, cut.To.Seq
	w.at, w.Head = w.start, w.start
	for len(w.heads) > 0 && w.heads[0].Size < w.Before {
		w.heads, w.Unseen = w.heads[1:], w.Unseen+1
	}
	if w.expect.Seq == w.Before && w.expect != w.Head || w.signed() != "" {
		return fmt.Sprintf("follows record %d, and the head of so many is of others", w.Before)
	}
	return ""
}
