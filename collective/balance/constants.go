package balance

import "time"

// The numbers that decisions go by. Each one names the test that fails when it is halved or doubled
// (of a gain, what is above 1). Limits of what comes from files and peers stand where they are
// checked.

// Gains, and how much longer something takes, as quotients of two times.
const (
	// gainToChange is worth another table. TestATableMustGain
	gainToChange = 1.015
	// gainToSplit is worth several rails in place of the best one alone (Nezha, Eq. 1).
	// TestSeveralRailsMustGain
	gainToSplit = 1.03
	// littleHelp is what the others take off the rail that carries most, if a trial of it alone costs
	// little. TestARailWithNearlyAllIsWorthATryAlone
	littleHelp = 1.2
	// gainToMove is worth another single rail: times of single rails carry the ranks' skew.
	// TestAnotherSingleRailMustGain
	gainToMove = 1.25
	// clearly is no accident of a few operations, but for noise. TestTheBaselineMayCostALittleAtFirst
	clearly = 1.35
	// greatly is too much to go on with. TestAClassRetreatsFromWhatIsMuchWorse
	greatly = 1.5
	// greatlyFar is too much, or a change of a rail, where it follows from other sizes, shares or a
	// probe. With 1.5 small operations behind a shaper stayed on a slow rail.
	// TestARailThatWasOnlyProbedMayTakeLonger
	greatlyFar = 1.8
	// mostGrowth is of a share, from one table to the next where there is noise: at worst it doubles
	// the time. What is off by more is no noise. TestAShareGrowsStepByStepWhereThereIsNoise
	mostGrowth = 2
	// farOff is a quotient of two sizes, or times, one of which says little of the other: a change at
	// one size is none of those that are so many times as large. A time so far from its line bends
	// that, also where operations are not brief. TestAChangeIsOfSizesThatAreNotMuchLarger
	farOff = 4.0
)

// Noise, in standard deviations of a window, and in logarithms of time.
const (
	// doubtWhileSettling must a gain be above: a mistake is corrected by the next set.
	// TestWhatNoiseExplainsMovesNoShares
	doubtWhileSettling = 0.5
	// likely must it be above once the class has settled. TestWhatNoiseExplainsMovesNoShares
	likely = 2.0
	// certain is what noise doesn't go beyond. TestNoiseIsNoChange
	certain = 3
	// priorDeviation is that of a quiet network, before anything was seen.
	// TestWhatNoiseExplainsMovesNoShares
	priorDeviation = 0.02
)

// Sets of windows.
const (
	// settlingSets go by before a class is settled; as many decide what is compared.
	// TestAContestHasFourPairs
	settlingSets = 4
	// noiseMemory is how many residuals the noise is the mean of. TestNoiseIsLearnedInEightSets
	noiseMemory = 8
	// rested is of one split, after which what was before is no comparison, and other algorithms are
	// tried. TestTheBestSplitIsForgottenWhenItIsLongAgo
	rested = 16
	// mostMemory is how many a rail's mean is made of, however noisy it is, and how many show whether it
	// lags behind. TestAMeanOfNoiseFollowsAllTheSame
	mostMemory = 32
	// remembered is how long a split of brief operations is, after the last set with it: through the
	// second pause of a penalty. So there are no more than that many. TestASplitIsRememberedForAWhile
	remembered = 2 * penaltyPause

	// The first pauses, and the longest of all. TestPausesDoubleUpToALimit
	samplePause  = 8   // a rail that is out costs an operation a little; the baseline's trials begin alike
	penaltyPause = 32  // what a rail has saved up in a pause takes operations to use up
	lastPause    = 512 // of a change that nothing else shows
)

// What a measurement tells of other sizes and shares. Weights are in windows.
const (
	// probeWeight is of a probed point: below 1, so that what is measured takes its place.
	// TestWhatIsMeasuredTakesTheProbesPlace
	probeWeight = 0.9
	// fade is what older points of a class keep when there is one of other shares.
	// TestAModelKeepsTheLastTwoSharesOfAClass
	fade = 0.5
	// neighbour is the weight of a point per size class that it is away. TestANeighbourCountsForAThird
	neighbour = 0.3
	// otherMode is the weight of a point that was taken alone when rails together are asked for, and
	// the reverse. TestWhatARailTookAloneTellsOfItsStartupBesideOthers
	otherMode = 1e-3
	// leanToZero pulls α towards 0, in squares of relative error: it decides where points can't.
	// TestPointsCloseToEachOtherTellLittleOfTheStartup
	leanToZero = 0.003
	// nearby is a difference of points' bytes, in logarithms, below which they are one point.
	// TestPartsOfAboutTheSameSizeAreOnePoint
	nearby = 0.15
	// maxPointsPerClass are kept of a class and mode: where its share was before is what tells α from
	// E. TestAModelKeepsTheLastTwoSharesOfAClass
	maxPointsPerClass = 2
	// reach is how many classes a measurement teaches to either side. TestAMeasurementTeachesSixClasses
	reach = 6
)

// Sizes and times of operations.
const (
	// brief operations, in seconds, are those that a burst can be a large part of: only they have
	// penalties. They end before frames bind to another rail than planned, so one round shows a rail.
	// TestAPenaltyIsForBriefOperations, TestALongOperationOnOneRailTriesTheWholeSplit
	brief = 0.01
	// leastStartup is a part of an operation's time. If smaller ones take it, one rail alone may do
	// better. TestRailsThatStartSlowly
	leastStartup = 0.3
	// smallPart of an operation, one in so many, is no risk: a share may grow up to it. Operations of
	// fewer rounds try nothing. TestAShareGrowsStepByStepWhereThereIsNoise
	smallPart = 8
	// largeClass is of 1 MiB: small operations begin on the rail that these are quickest on.
	// TestSmallOperationsBeginWhereOneMiBIsQuickest
	largeClass = 20
	// maxUnits bounds the resolution of shares: more rounds than that are shared in larger units.
	// TestSharesAreOfAThousandRoundsAtMost
	maxUnits = 1024
)

// What makes a set of windows: the mean of ten operations (Nezha §IV-B), and so many more that the
// time spent on reporting them is small against theirs.
const (
	// WindowOperations is their least number. TestTimerGivesTheMeanOfTenOperationsWithoutTheSlowest
	WindowOperations = 10
	// windowElapsed is of the first windows with a split. Later ones take twice as long each, up to
	// twice what is transient. TestShortOperationsFillLongerWindows
	windowElapsed = time.Millisecond
	// transient is of operations with a new split that don't count, if they can be divided: they live
	// on what a rail had saved up. TestWindowsGrowWhileTheTableStays
	transient = 8 * time.Millisecond
)
