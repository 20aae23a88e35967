// Package contract holds the broker to the contract of an MCP client with delegated
// authentication, by the names that its checks have there: C1 to C24 for every kind
// of connection, and beside them what an import, a contact, a run and an approval are.
//
// A whole broker stands before a small scripted server, and is asked through its
// HTTP API alone. Nothing varies from one profile to the next but the server, its
// session, its data class and its approval. Where this broker does otherwise than
// the contract says, the check asserts what it does, and a line says why.
package contract

import "testing"

// A check is a line of the contract's table, under its name there.
type check struct {
	name  string
	calls bool // it calls a tool, so the operator's file says that no approval is needed
	run   func(t *testing.T, r *rig)
}

var checks = []check{
	{"C1 connectOpensTheSessionAndConfirmsItBeforeAnythingElse", false, opensTheSession},
	{"C2 carriesTheServersSessionDecisionThroughTheWholeOperation", true, carriesTheSession},
	{"C3 offersNoClientCapabilitiesAndReportsWhatTheServerDeclared", false, offersNoCapabilities},
	{"C4 discoversTheWholeCatalogueAcrossPages", false, discoversAcrossPages},
	{"C5 stopsWalkingACatalogueThatNeverEnds", false, stopsWalking},
	{"C6 normalisesADiscoveredSchemaDownToTheAcceptedSubset", false, normalisesASchema},
	{"C7 refusesASchemaItCannotRepresentInsteadOfRepairingIt", false, refusesASchema},
	{"C8 aStoredSchemaThatIsNotAnObjectHasNoSchemaToOffer", true, storedSchema},
	{"C9 executesAToolUnderItsRemoteNameAndReturnsTheResult", true, executesATool},
	{"C10 readsAnEventStreamFramedAnswerLikeAPlainOne", true, readsAnEventStream},
	{"C11 aToolLevelErrorFromTheServerBecomesAFailedToolResult", true, toolLevelError},
	{"C12 namesTheContentBlocksItCouldNotCarryBeforeTheAnswerItself", true, namesTheBlocks},
	{"C13 putsAFiniteTimeoutOnTheClientItBuilds", true, finiteTimeout},
	{"C14 spendsOneBudgetAcrossTheLegsOfAnOperation", true, oneBudget},
	{"C15 anExhaustedBudgetIsItsOwnOutcomeAndNotAServerFailure", true, exhaustedBudget},
	{"C16 neverGrantsALegATimeoutThatWouldMeanNoTimeout", true, noTimeoutIsNone},
	{"C17 aConnectionThatNeverAnswersBecomesAFailedToolResult", true, neverAnswers},
	{"C18 aCancellationHasOneSeam", true, oneSeam},
	{"C19 everyServerFailureBecomesAFailedToolResult", true, serverFailures},
	{"C20 refusesAResponseLargerThanTheReadCap", true, overTheCap},
	{"C21 everyRemoteCallIsAuditCriticalByDeclaration", true, auditCritical},
	{"C22 theDataClassIsTheOperatorsAndTheServerCannotMoveIt", false, dataClass},
	{"C23 presentsItselfToTheGateAsARemoteToolWithAnOperatorDeclaredClass", false, presentsItself},
	{"C24 recordsOneContactPerCompletedOperationAndNoneForAFailedOne", true, oneContact},
}

func TestConformance(t *testing.T) {
	for _, p := range profiles {
		t.Run(p.name, func(t *testing.T) {
			for _, c := range checks {
				t.Run(c.name, func(t *testing.T) {
					t.Parallel()
					approval := "requires_approval: false"
					if p.approval && !c.calls {
						approval = "requires_approval: true"
					}
					c.run(t, start(t, p, approval))
				})
			}
		})
	}
}
