"""Names of places that are common words as well: "a cat in bath" need not mean the city of Bath."""

#: Names of cities and countries in GeoNames, and other spellings of them, that Hunspell's
#: dictionaries for English and German list in lower case, and a few common words of Spanish and
#: Italian. All are without accents.
_WORDS = """
aalen aalst aalten acacias acre acropolis ado agar alabaster ale ales alga allen alliance
aloha along als alter altos amen anchorage anew angers angle angora angostura annex ans
antelope anthem apex arbutus archangel arching archway area arras ascot asp astrakhan ate
auburn auch aurora bad baden badger bag bah balaclava bale bally balsas ban bane banes bangs
bani banjo banning bar bard bare bargen barium barking barn barrage barrios barrow basic
baste baster bat bath batman battleground baud bay bear begun bell bend bender berge bergen
berk best beten big bijou billings bimbo bin binde bist blast bloom bluffs boatyard bode
bolder bolivar bologna bolus bone bonny boo boom boon boons born borne bossier boulder
bountiful bow bra brach brad brake brat bray breves bro broach brummen brusque buchen
buckeye buffalo buhe bun burg burs bursa bursae bury busk bust but butte buy cairns cali
caller calumet can candler canebrake canes canning canton cantonment care carny carpi cars
cay cayenne centennial center central centurion chad chagrin chair champion champs chandler
chaparral chesterfield chi chihuahua chin china chinking chino chunking cine clay clot
cloverleaf cobra coca cocoa cognac cologne colon columbine com combs come como compendium
conception concord cone consolation converse coo cordon cork corona cove creek crossroads
crystal curacao cutler cypress dab dabei dam damask dame dandy dar daran date davenport deal
debar defiance delft deli delis delta denen derby des diamante dig dilly dinar dir dis dist
div diva divas dogwood dole dome doodah dort dosing dour drama draper drug dry dual due dyer
eagle earnest eher elbow elk emerita emery empire ende enger enterprise eras erlangen erode
esse essen eureka evens ever evergreen faches fan far faro fatwa federal felling fez fiche
fishers fishpond fishponds flagstaff fleet flint florin flushing fords fore forest forge
fountain fowling franko frechem frechen freedom freshwater from fulminant furnace gal gala
gale galt ganja gap garland garner garni garrison gay geh gel genes gent germinal gerne ghat
giblet giessen gingen god goes gold golden google graham gran granges grants grapevine grass
grays green greenbelt greenfield greenwood grenade griffin grin grins grove groves guarani
guider guinea gums hag hale hall halle hallo ham hamburg hang hardscrabble hare hart
hawthorn hays heil hem hermitage hickory highland highlands hillside hims hippo hit holden
holiday holt homburg homestead homo hon honcho hook hoover horn horten hosanna hove hue hula
hull human humble hums humus hunter hurricane hurst hwy ibis imperial independence insula
japan jasper jaw jene jersey jette jingling johnnycake junction kale kam kamen kana kann
karakul kasper kauen kayo keen keystone khan kilo kin kinder klang kola kolas kosten kure
kurten labe lac lach lacrosse lad lag lakeside lama lampoon lancing landau landen lang
langen largo lat lattes lauf laurel laut lawn lech leek leer leghorn lehrte leiden leimen
lemon lemur lend lens lessen liberal liberty lice lido lids liege lien lila lilo lima lime
limerick limo linden linen lino lints lion lira lisle lively loan log logos lohne lone loop
loos lot luau lube luck lud mach madras magenta magnesia maidenhead make makes male man
manage manga manger mango manila manly manning manta mantes marathon march mare marina
market marks marl marshal martin marts mascara mascot mason mastic maw mecca med medias
megalopolis mehr mentor meres meridian merke mesa meshed mesquite metro midland midstream
midway mien mile minster mire mission mkay mobil mobile mocha mole moll morden more morocco
moron mos mosquito moss most much muenster munden mus muscat mush mustang myrtle mystic name
natal neath nelson neptunium never newel newton nice nit nix noisy normal north novae och
ocher ode off ogre okay one opportunity oral orange orchards outer overland oxford pace
paisley pal palatine palmetto palmy pan panama panda panorama pap papa papaya para paradise
paramount paras parat pare parkland parole part pascal pastas pavlovas pearl pecs peer pen
perm pert pets phoenix pin pinewood pinto piranhas pirate pita plain plantation plaza plum
plunge plunges poinciana pole police polo pompano ponce pop port portage posse possession
pout pristine proclamation proctors prosper providence pueblo pukes puma pun punch put quack
quarto queens rads rage ram ran rand rangen ranters rapid rasa rast raver ray reading rede
redwood rems republic res reservoir rest retreat reunion revel revere rho rhos riding rim
ringen riverbank riverside rivet riviera roan rogers rohe roles roman rosa roses rosette rot
rota rouge roundabout rouse rube rugby ruse rust rye sabra saga sake salamis sale saline
salines salon salt samba same sandy saran sari saris satte saust savage savanna save schmelz
schooner seaside sedan seen segele seil seist sen senden senna sens seraglio sere set shaman
shanghai shaping she shields shore shoreline shortens shush side siegen sienna sim simmering
simony sin since sine sing singen siren sis skit skive slaughter slough snits sol sole solo
somerset soul sour souse sparks sparte spire spires split spoken spray spring springe
springs squawk sriracha stagier stains stat sterling stoke stow sue sues summit sumo sunning
sunrise sunset superior surprise surrey suss swallow swan swords sycamore tabor tabu taiga
taker tale tall tam tamale tame tampon tams tan tangier tango tank tape tapes tars tarsus
tartar tbs tell temple tequila termini terminus terrace than thane thorn tie til tilt ting
tire tome tonging tongue tooting topi torn torrent tors tour tours trad trap trat trident
trier troy truss tub tuba tubas tucker tulle tun tunas tune tunes turbo turkey turn turne
turner tyros union university upland uptown vac valence valley van vans vermilion vernier
vert verve vestal veto victor vineyard vise vista vita von wadi waits waling walker walling
walnut wan ware waren warn warren wary wave waver weasel wed wedding wedel weiden weil
welling wellington wen wenden wer westerly wetter wheeling wigeon wile winder wisch woodland
woodlands worms worth wright yang yarn yen young yuan zahle zelten zest zittert
"""
#: Names of places that are common words, lower-case and without accents.
COMMON_NAMES = frozenset(_WORDS.split())
