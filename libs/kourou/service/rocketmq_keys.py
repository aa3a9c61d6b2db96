"""RocketMQ settings that have no effect in Kourou.

They are accepted with a warning, so that a `broker.conf` can be used unchanged. Most of them size
thread pools and buffers that Kourou does not have. A service's own settings take precedence over
this list, so adding one needs no change here.
"""

from __future__ import annotations


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_BROKER = _names("""
    accountStatsEnable accountStatsPrintZeroValues adminBrokerThreadPoolNums
    autoDeleteUnusedStats autoMessageVersionOnTopicLen brokerConfigPath brokerFastFailureEnable
    brokerIP2 brokerTopicEnable clientManagerThreadPoolQueueCapacity clientManageThreadPoolNums
    clusterTopicEnable commercialBaseCount commercialBigCount commercialEnable
    commercialSizePerMsg commercialTimerCount commercialTransCount compressedRegister
    consumerFallbehindThreshold consumerManagerThreadPoolQueueCapacity
    consumerManageThreadPoolNums disableConsumeIfConsumerReadSlowly enableCalcFilterBitMap
    enableDetailStat endTransactionPoolQueueCapacity endTransactionThreadPoolNums
    expectConsumerNumUseFilter filterDataCleanTimeSpan filterServerNums filterSupportRetry
    flushConsumerOffsetHistoryInterval forceRegister heartbeatThreadPoolNums
    heartbeatThreadPoolQueueCapacity highSpeedMode isolateLogEnable maxErrorRateOfBloomFilter
    msgTraceTopicName processReplyMessageThreadPoolNums
    pullMessageThreadPoolNums pullThreadPoolQueueCapacity putMessageFutureThreadPoolNums
    putThreadPoolQueueCapacity queryMessageThreadPoolNums queryThreadPoolQueueCapacity
    replyThreadPoolQueueCapacity rocketmqHome sendMessageThreadPoolNums
    sendThreadPoolQueueCapacity shortPollingTimeMills slaveReadEnable
    startAcceptSendRequestTimeStamp storeReplyMessageEnable traceTopicEnable
    transactionCheckInterval transactionCheckMax transactionTimeOut transferMsgByHeap
    waitTimeMillsInHeartbeatQueue waitTimeMillsInPullQueue waitTimeMillsInTransactionQueue
""")
"""RocketMQ 4.9 `BrokerConfig`."""

_STORE = _names("""
    accessMessageInMemoryMaxRatio bitMapLengthConsumeQueueExt checkCRCOnRecover
    cleanResourceInterval commitCommitLogLeastPages commitCommitLogThoroughInterval
    commitIntervalCommitLog correctLogicMinOffsetForceInterval debugLockEnable
    deleteCommitLogFilesInterval deleteConsumeQueueFilesInterval deleteFileBatchMax
    destroyMapedFileIntervalForcibly diskFallRecorded dLegerGroup dLegerPeers dLegerSelfId
    duplicationEnable enableConsumeQueueExt enableDLegerCommitLog enableLmq enableMultiDispatch
    enableScheduleAsyncDeliver enableScheduleMessageStats fastFailIfNoBufferInStorePool
    flushConsumeQueueLeastPages flushConsumeQueueThoroughInterval flushDelayOffsetInterval
    flushIntervalConsumeQueue flushLeastPagesWhenWarmMapedFile haHousekeepingInterval
    haListenPort haSendHeartbeatInterval haSlaveFallbehindMax haTransferBatchSize
    isEnableBatchPush mapedFileSizeConsumeQueue mappedFileSizeConsumeQueue
    mappedFileSizeConsumeQueueExt maxBatchDeleteFilesNum maxHashSlotNum maxIndexNum
    maxLmqConsumeQueueNum maxMsgsNumBatch offsetCheckInSlave osPageCacheBusyTimeOutMills
    preferredLeaderId putMsgIndexHightWater
    redeleteHangedFileInterval scheduleAsyncDeliverMaxPendingLimit
    scheduleAsyncDeliverMaxResendNum2Blocked slaveTimeout storePathDLedgerCommitLog
    syncFlushTimeout totalReplicas transientStorePoolEnable transientStorePoolSize
    useReentrantLockWhenPutMessage
""")
"""RocketMQ 4.9 `MessageStoreConfig`, with spellings of older versions."""

_REMOTING = _names("""
    channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
    clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
    clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
    clientWorkerThreads connectTimeoutMillis disableCallbackExecutor disableNettyWorkerGroup
    serverAsyncSemaphoreValue serverCallbackExecutorThreads
    serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable serverSelectorThreads
    serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize serverWorkerThreads
    socksProxyConfig useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark
""")
"""RocketMQ 4.9 `NettyServerConfig` and `NettyClientConfig`."""

_NAMESRV = _names("""
    bindAddress clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity clusterTest
    defaultThreadPoolNums defaultThreadPoolQueueCapacity enableAllTopicList
    enableTopicList needWaitForService notifyMinBrokerIdChanged
    productEnvName returnOrderTopicConfigToBroker rocketmqHome supportActingMaster
    unRegisterBrokerQueueCapacity waitSecondsForService
""")
"""RocketMQ `NamesrvConfig`, 4.9 and 5."""

_LATER = _names("""
    accessMessageInMemoryHotRatio ackMessageThreadPoolNums ackThreadPoolQueueCapacity
    adminBrokerThreadPoolQueueCapacity asyncLearner asyncSendEnable
    batchDispatchRequestThreadPoolNums bindAddress broadcastOffsetExpireMaxSecond
    broadcastOffsetExpireSecond brokerElectionPriority brokerHeartbeatInterval
    brokerNotActiveTimeoutMillis cgColdReadThreshold checkSyncStateSetPeriod
    cleanOfflineBrokerInterval cleanSwapedMapInterval coldCtrStrategyEnable
    coldDataFlowControlEnable coldDataScanEnable commitLogForceSwapMapInterval
    commitLogSwapMapInterval commitLogSwapMapReserveFileNum compactionCqMappedFileSize
    compactionMappedFileSize compactionScheduleInternal compactionThreadNum
    compatibleWithOldNameSrv consumerOffsetUpdateVersionStep controllerAddr
    controllerHeartBeatTimeoutMills correctLogicMinOffsetSleepInterval dataReadAheadEnable
    defaultMessageRequestMode defaultPopShareQueueNum delayOffsetUpdateVersionStep
    disappearTimeAfterStart dispatchCqCacheNum dispatchCqThreads dispatchFromSenderThread
    enableAsyncReput enableAutoInSyncReplicas enableBatchPush enableBroadcastOffsetStore
    enableBuildConsumeQueueConcurrently enableCleanExpiredOffset enableCompaction
    enableNetWorkFlowControl enableNotifyAfterPopOrderLockRelease
    enablePopBatchAck enablePopBufferMerge enablePopLog enableRemoteEscape
    enableSkipLongAwaitingAck enableSlaveActingMaster estimateAccumulation
    fetchControllerAddrByDnsLookup fetchNameSrvAddrByDnsLookup fetchNamesrvAddrInterval
    forwardTimeout globalColdReadThreshold haFlowControlEnable haMaxGapNotInSync
    haMaxTimeSlaveNotCatchup litePullMessageEnable litePullMessageThreadPoolNums
    litePullThreadPoolQueueCapacity loadBalancePollNameServerInterval
    loadBalanceProcessorThreadPoolNums loadBalanceThreadPoolQueueCapacity lockInStrictMode
    logicalDiskSpaceCleanForciblyThreshold logicQueueForceSwapMapInterval
    logicQueueSwapMapInterval logicQueueSwapMapReserveFileNum mappedFileSizeTimerLog
    mappedFileSwapEnable mapperFileSizeBatchConsumeQueue maxAsyncPutMessageRequests
    maxChecksumRange maxConsumeQueueScan maxHaTransferByteInSecond maxOffsetMapSize
    maxPopPollingSize maxRecoveryCommitlogFiles maxSlaveResendLength maxTopicLength
    metricGrpcExporterIntervalInMills metricGrpcExporterTimeOutInMills
    metricLoggingExporterIntervalInMills metricsExporterType metricsGrpcExporterHeader
    metricsGrpcExporterTarget metricsInDelta metricsLabel metricsPromExporterHost
    metricsPromExporterPort popCkMaxBufferSize popCkOffsetMaxQueueSize
    popCkStayBufferTime popCkStayBufferTimeOut popPollingMapSize popPollingSize
    pullBatchMaxMessageCount putMessageTimeout realTimeNotifyConsumerChange
    recheckReputOffsetFromCq recoverConcurrently recoverThreadPoolNums rejectPullConsumerEnable
    replicasPerDiskPartition reviveAckWaitMs reviveInterval reviveMaxSlow reviveQueueNum
    reviveScanTime sampleCountThreshold sampleSteps searchBcqByCacheEnable
    sendHeartbeatTimeoutMillis serverLoadBalancerEnable skipPreOnline storePathBrokerIdentity
    storePathEpochFile subscriptionExpiredTimeout syncBrokerMemberGroupPeriod
    syncBrokerMetadataPeriod syncControllerMetadataPeriod syncFromLastFile
    syncMasterFlushOffsetWhenStartup timerCheckMetricsWhen timerColdDataCheckIntervalMs
    timerCongestNumEachSlot timerEnableCheckMetrics timerEnableDisruptor timerFlushIntervalMs
    timerGetMessageThreadNum timerInterceptDelayLevel timerMaxDelaySec timerMetricSmallThreshold
    timerPrecisionMs timerProgressLogIntervalMs timerPutMessageThreadNum timerRollWindowSlot
    timerSkipUnknownError timerStopDequeue timerStopEnqueue timerWarmEnable timerWheelEnable
    transactionOpBatchInterval transactionOpMsgMaxSize travelCqFileNumWhenGetMessage
    usePIDColdCtrStrategy useServerSideResetOffset useStaticSubscription
    validateSystemTopicWhenUpdateTopic waitTimeMillsInAckQueue waitTimeMillsInLitePullQueue
    wakeCommitWhenPutMessage wakeFlushWhenPutMessage
""")
"""Keys that RocketMQ 5 added to the broker and its store."""

BROKER_KEYS = _BROKER | _STORE | _REMOTING | _LATER
NAMESRV_KEYS = _NAMESRV | _REMOTING
